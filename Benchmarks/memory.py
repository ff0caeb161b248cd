#!/usr/bin/env python3
"""memory.py PROGRAMS…: what a gateway does that may have so little memory: at full speed, in turns, each with the meshpostd of one of the folders.

A memory cgroup (version 1 or 2; needs root) has the gateway alone: its own memory, what is read of its program and its database, and what the kernel holds for
it. The program is a copy that nobody else reads; libraries count for whom reads them first, as on a machine with other services. How much is read at once is
the disk's matter (read_ahead_kb). The radio and the hub (those of the first folder) are outside. Time and processor are from the first message until the hub
has taken the last.

    --limits 0 16 14 12  MiB; 0 is no limit    --messages 20000    --patience 60  seconds until it counts as not done    --times 1
    --alone       nobody else uses the libraries either
    --folder DIR  where the database and the copies are, on the disk that is measured
    --pages       in place of that: what of each mapping was read or written within three seconds at full speed, without a limit
    --order FILE  in place of that: writes to FILE which functions of a release program were called, those of full speed first, for the linker
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from gateway import free_port, status, until  # noqa: E402

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("programs", type=pathlib.Path, nargs="+")
arguments.add_argument("--limits", type=float, nargs="+", default=[0, 16, 14, 12])
arguments.add_argument("--messages", type=int, default=20000)
arguments.add_argument("--patience", type=float, default=60)
arguments.add_argument("--times", type=int, default=1)
arguments.add_argument("--alone", action="store_true")
arguments.add_argument("--folder", type=pathlib.Path)
arguments.add_argument("--pages", action="store_true")
arguments.add_argument("--order", type=pathlib.Path)
options = arguments.parse_args()
HERE = pathlib.Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")


class Group:
    """A memory cgroup of its own."""

    def __init__(self, name):
        old = pathlib.Path("/sys/fs/cgroup/memory")
        self.is_old = old.is_dir()
        self.place = (old if self.is_old else pathlib.Path("/sys/fs/cgroup")) / name
        if not self.is_old:
            (self.place.parent / "cgroup.subtree_control").write_text("+memory")
        self.place.mkdir()

    def limit(self, mebibytes):
        if mebibytes:
            (self.place / ("memory.limit_in_bytes" if self.is_old else "memory.max")).write_text(str(int(mebibytes * (1 << 20))))

    def enter(self):
        (self.place / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        until("the cgroup to be empty", lambda: self.place.rmdir() is None)


class Gateway:
    """The programs of one measurement: a virtual radio, a hub, and a gateway in a group."""

    def __init__(self, programs, folder, limit):
        self.folder, self.started = folder, []
        self.group = Group(f"meshpost-bench-{os.getpid()}")
        self.group.limit(limit)
        port = free_port()
        (folder / "token").write_text("bench-token-bench-token\n")
        (folder / "hub.toml").write_text(f'port = {port}\ndatabase = "{folder}/hub.db"\n[[token]]\nfile = "{folder}/token"\naccess = "write"\n')
        (folder / "gw.toml").write_text(
            f'[radio]\nlink = "serial:{folder}/tty"\n[store]\nlocation = "{folder}/gw.db"\n[control]\nsocket = "{folder}/ctl"\n'
            f'[[upstream]]\nname = "hub"\nurl = "http://127.0.0.1:{port}"\ntoken_file = "{folder}/token"\n')
        self.start(options.programs[0] / "meshpost-hub", "serve", "--config", folder / "hub.toml")
        self.radio = self.start(
            options.programs[0] / "meshpost-radio", "--clock", "now", "--nodes", 3, "--advertise", "--max-contacts", 350, "--contacts", 350,
            "--queue", 1000000, "--tty", f"r0={folder}/tty")
        until("the radio", lambda: (folder / "tty").exists())
        if options.order:
            self.daemon = self.start(sys.executable, HERE / "calls.py", options.order, programs / "meshpostd", "--config", folder / "gw.toml")
            return
        copies(programs / "meshpostd", folder / "copy")
        self.daemon = self.start(
            folder / "copy/meshpostd", "--config", folder / "gw.toml", preexec_fn=self.group.enter, env=os.environ | {"LD_LIBRARY_PATH": folder / "copy"})

    def start(self, *command, **more):
        process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=open(self.folder / "log", "a"), text=True, **more)
        self.started.append(process)
        return process

    def is_ready(self):
        now = status(self.folder / "ctl")
        return now["sync"]["state"] == "synced" and now["upstreams"][0].get("link") == "live" and now["upstreams"][0]["pending"] == 0

    def inject(self, count):
        self.tell(f"inject r0 0 {count}")

    def tell(self, command):
        self.radio.stdin.write(f"{command}\n")
        self.radio.stdin.flush()

    def relayed(self):
        now = status(self.folder / "ctl")
        return now["store"]["messages"] - now["upstreams"][0]["pending"]

    def spent(self):
        """Processor in seconds, and how often a page had to be read from the disk."""
        fields = pathlib.Path(f"/proc/{self.daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS, int(fields[9])

    def end(self):
        for process in reversed(self.started):
            process.kill()
            process.wait()
        self.group.remove()


def copies(program, place):
    """A stripped copy, and with --alone of its libraries but the C library: on the disk, and not in memory."""
    place.mkdir()
    subprocess.run(["strip", "-o", place / "meshpostd", program], check=True)
    if options.alone:
        for library in re.findall(r"=> (/\S+)", subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout):
            if not re.search(r"/lib[cm]\.so", library):
                shutil.copy(library, place)
    os.sync()
    for file in place.iterdir():
        with open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(programs, limit):
    """Messages a second, processor for each thousand in milliseconds, reads from the disk for each thousand, and MiB at most; or why there is nothing to say."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-memory-", dir=options.folder or options.programs[0].resolve().parent))
    gateway = Gateway(programs, folder, limit)
    try:
        until("the sync", gateway.is_ready, limit=options.patience)
        (processor, reads), begin, done = gateway.spent(), time.monotonic(), 0
        gateway.inject(options.messages)
        while done < options.messages and time.monotonic() < begin + options.patience:
            time.sleep(0.1)
            done = gateway.relayed()
        seconds, after = time.monotonic() - begin, gateway.spent()
        state = "" if done >= options.messages else f" (not done: {done:,} of {options.messages:,})"
        return f"{done / seconds:,.0f}{state} | {(after[0] - processor) * 1e6 / max(done, 1):,.0f} | {(after[1] - reads) * 1e3 / max(done, 1):,.1f}"
    except (RuntimeError, OSError) as error:
        return f"not up ({error}) | – | –" if gateway.daemon.poll() is None else f"ended by {-gateway.daemon.returncode} | – | –"
    finally:
        gateway.end()
        shutil.rmtree(folder)


def pages(programs):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-memory-", dir=options.folder or options.programs[0].resolve().parent))
    gateway = Gateway(programs, folder, 0)
    try:
        until("the sync", gateway.is_ready)
        gateway.inject(10 * options.messages)
        until("the relay", lambda: gateway.relayed() > options.messages)
        process = pathlib.Path(f"/proc/{gateway.daemon.pid}")
        (process / "clear_refs").write_text("1")
        time.sleep(3)
        rows, name = {}, ""
        for line in (process / "smaps").read_text().splitlines():
            fields = line.split()
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                name = f"{pathlib.Path(fields[5]).name if len(fields) > 5 else 'anonymous'} | {fields[1]}"
            elif fields[0] in ("Size:", "Rss:", "Referenced:", "Anonymous:"):
                row = rows.setdefault(name, {})
                row[fields[0]] = row.get(fields[0], 0) + int(fields[1])
        print(f"{programs}\n| mapping | | KiB | resident | of that, read or written in 3 s | of its own |\n|---|---|---|---|---|---|")
        for name, row in sorted(rows.items(), key=lambda item: -item[1]["Referenced:"]):
            print(f"| {name} | " + " | ".join(f"{row[field]:,}" for field in ("Size:", "Rss:", "Referenced:", "Anonymous:")) + " |")
        print("| all | | " + " | ".join(f"{sum(row[field] for row in rows.values()):,}" for field in ("Size:", "Rss:", "Referenced:", "Anonymous:")) + " |")
    finally:
        gateway.end()
        shutil.rmtree(folder)


def order(programs):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-memory-"))
    gateway = Gateway(programs, folder, 0)
    try:
        for phase in range(1, 3):
            until("the sync", gateway.is_ready)
            for words in ("chan r1 0 over the ridge", "dm r2 r0 just for you"):
                gateway.tell(words)
            gateway.inject(options.messages // 20)
            until("the relay", lambda: gateway.relayed() >= phase * options.messages // 20)
            time.sleep(3)
            if phase == 1:
                gateway.daemon.send_signal(signal.SIGUSR1)
        gateway.daemon.terminate()
        gateway.daemon.wait()
    finally:
        gateway.end()
        shutil.rmtree(folder)


if options.order:
    order(options.programs[0])
elif options.pages:
    for programs in options.programs:
        pages(programs)
else:
    print("| MiB | program | messages a second | processor for each, µs | pages read from the disk, each thousand |\n|---|---|---|---|---|")
    for limit in options.limits:
        for _ in range(options.times):
            for programs in options.programs:
                print(f"| {limit or 'all':g} | {programs} | {measure(programs, limit)} |" if limit else f"| no limit | {programs} | {measure(programs, limit)} |", flush=True)
