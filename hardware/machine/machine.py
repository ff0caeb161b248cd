"""A small emulated Debian machine: its disk, its power, its USB, and a shell in it.

Everything is in a folder of its own, made from the disk that `setup` has made; nothing of the host is changed, no rights are needed.
"""
import base64
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from disk import Disk

here = pathlib.Path(__file__).resolve().parent
checkout = here.parent.parent
NATIVE = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
ARCHITECTURE = os.environ.get("MESHPOST_MACHINE_ARCH", NATIVE)
cache = pathlib.Path(os.environ.get("MESHPOST_MACHINE", checkout / (".build/machine" if ARCHITECTURE == NATIVE else f".build/machine-{ARCHITECTURE}")))
# What an architecture's machine is, and which serial ports it has: for its console, then for the agent.
MACHINES = {
    "amd64": (["qemu-system-x86_64", "-cpu", "max"], "ttyS0", ["-serial", "chardev:agent"]),
    "arm64": (["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"], "ttyAMA0", ["-device", "pci-serial,chardev=agent"]),
}
PATIENCE = float(os.environ.get("MESHPOST_TEST_PATIENCE", "60")) * 2
# Seconds on the clock for each second of patience: the emulated processor has to share this machine's with all other tests.
SHARE = 10


class Patience:
    """How long something in the machine may take: in seconds of its processor, because on a busy host the clock says nothing about it. What waits
    without working has its limit on the clock."""

    def __init__(self, process, seconds=PATIENCE):
        self.process, self.seconds = process, seconds
        self.began, self.worked = time.monotonic(), self._worked()

    def is_over(self):
        if self.process.poll() is not None:
            return True
        return self._worked() - self.worked > self.seconds or time.monotonic() - self.began > SHARE * PATIENCE

    def _worked(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Machine:
    """`share` is a folder that the machine sees, read-only, as /share."""

    def __init__(self, folder, share):
        self.folder, self.share = pathlib.Path(folder), share
        self.folder.mkdir(parents=True, exist_ok=True)
        image = self.folder / "disk.img"
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", cache / "disk.img", image], check=True)
        self.disk = Disk(image, str(self.folder / "nbd"))
        self.radios = []  # (id, port, serial)
        self.process = self.agent = self.monitor = None

    # Power

    def start(self):
        self.disk.power_on()
        kernel = next((cache / "kernel/boot").glob("vmlinuz-*"))
        program, console, agent = MACHINES[ARCHITECTURE]
        # no_timer_check: the kernel counts ten ticks in what it takes for the time of ten ticks. On a busy host an emulated timer comes too late for
        # that, and the kernel panics.
        command = [
            *program, "-accel", "tcg,thread=multi", "-smp", "2", "-m", "512", "-display", "none", "-no-reboot",
            "-kernel", kernel, "-initrd", cache / "initramfs.gz",
            "-append", f"console={console} quiet loglevel=3 panic=-1 mitigations=off cryptomgr.notests=1 no_timer_check root=/dev/vda rw systemd.show_status=0 net.ifnames=0",
            "-drive", f"if=virtio,format=raw,file.driver=nbd,file.server.type=unix,file.server.path={self.folder}/nbd,cache=writeback,discard=ignore",
            "-serial", f"file:{self.folder}/console.log",
            "-chardev", f"socket,id=agent,path={self.folder}/agent,server=on,wait=off", *agent,
            "-qmp", f"unix:{self.folder}/qmp,server=on,wait=off", "-monitor", "none",
            "-nic", "user,model=virtio-net-pci,restrict=off", "-device", "qemu-xhci,id=usb",
            "-virtfs", f"local,path={self.share},mount_tag=share,security_model=none,readonly=on,multidevs=remap",
        ]
        for name in ("agent", "qmp"):
            (self.folder / name).unlink(missing_ok=True)
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stderr=open(self.folder / "qemu.log", "a"))
        self._connect()
        for radio in self.radios:
            self._attach(*radio)

    def _connect(self):
        end = time.monotonic() + PATIENCE
        self.agent, self.monitor = self._socket("agent", end), self._socket("qmp", end)
        self.monitor_file = self.monitor.makefile("r")
        json.loads(self.monitor_file.readline())
        self.qmp("qmp_capabilities")
        self.agent.settimeout(1)
        self.said = b""
        while "agent ready" not in self._line("its start", 5 * PATIENCE):
            pass

    def _socket(self, name, end):
        while True:
            try:
                client = socket.socket(socket.AF_UNIX)
                client.connect(str(self.folder / name))
                return client
            except OSError:
                assert self.process.poll() is None, open(self.folder / "qemu.log").read()
                assert time.monotonic() < end, f"{name}: nobody listens"
                time.sleep(0.05)

    def cut(self, seed, at_flush=False):
        """The power goes, at this moment, or when the disk is next asked to flush what it has."""
        outcome = self.disk.cut_at_flush(seed, PATIENCE) if at_flush else None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return outcome or self.disk.cut(seed)

    def shut_down(self):
        """As `poweroff` does."""
        self.agent.sendall(b"systemctl poweroff\n")
        self.process.wait(timeout=PATIENCE)

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # USB

    def plug(self, name, port, serial):
        """A USB serial adapter (FTDI), behind which is what listens on a TCP port of the host."""
        self.radios.append((name, port, serial))
        if self.process:
            self._attach(name, port, serial)

    def unplug(self, name):
        self.radios = [radio for radio in self.radios if radio[0] != name]
        self.qmp("device_del", id=name)
        end = time.monotonic() + PATIENCE
        while True:  # the line behind it is free when the guest has let go
            try:
                return self.qmp("chardev-remove", id=f"{name}-line")
            except RuntimeError:
                assert time.monotonic() < end
                time.sleep(0.1)

    def _attach(self, name, port, serial):
        address = {"type": "inet", "data": {"host": "127.0.0.1", "port": str(port)}}
        self.qmp("chardev-add", id=f"{name}-line", backend={"type": "socket", "data": {"addr": address, "server": False, "reconnect": 1}})
        self.qmp("device_add", driver="usb-serial", id=name, chardev=f"{name}-line", serial=serial)

    def qmp(self, command, **arguments):
        self.monitor.sendall((json.dumps({"execute": command, "arguments": arguments}) + "\n").encode())
        while True:
            answer = json.loads(self.monitor_file.readline())
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    # A shell in it

    def run(self, command):
        """Exit code and what it printed."""
        self.agent.sendall(command.replace("\n", "; ").encode() + b"\n")
        line = self._line(command)
        output, code = line.rsplit(" ", 1)
        return int(code), base64.b64decode(output).decode(errors="replace")

    def _line(self, command, seconds=PATIENCE):
        """The next line of the agent."""
        patience = Patience(self.process, seconds)
        while b"\n" not in self.said:
            try:
                said = self.agent.recv(1 << 16)
                assert said, f"the machine went away during: {command}\n" + self._console()
                self.said += said
            except TimeoutError:
                assert not patience.is_over(), f"no answer to: {command}\n" + self._console()
        line, self.said = self.said.split(b"\n", 1)
        return line.decode(errors="replace")

    def _console(self):
        return (self.folder / "console.log").read_text(errors="replace")[-2000:]

    def do(self, command):
        code, output = self.run(command)
        assert code == 0, f"{command}: exit code {code}\n{output}"
        return output

    def until(self, what, condition):
        patience = Patience(self.process)
        while True:
            value = condition()
            if value:
                return value
            assert not patience.is_over(), f"waited in vain for {what}\n" + self.run("systemctl status meshpost; journalctl -n 40 --no-pager")[1]
            time.sleep(0.2)
