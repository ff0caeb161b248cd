#!/usr/bin/env python3
"""wakeups.py PROGRAMS [SECONDS]: how often an idle gateway wakes, and why: several beside each other, each with a radio that says nothing.

Voluntary context switches of all threads over SECONDS (default 300) after everything has come up.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from gateway import free_port, status, until

programs, seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 300
root = pathlib.Path(__file__).resolve().parent.parent
folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-wakeups-"))
started = []


def start(*command, **options):
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    started.append(process)
    return process


def switches(process):
    total = 0
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


hub, broker = free_port(), free_port()
(folder / "token").write_text("bench-token-bench-token\n")
(folder / "hub.toml").write_text(f'port = {hub}\ndatabase = "{folder}/hub.db"\n[[token]]\nfile = "{folder}/token"\naccess = "all"\n')
(folder / "mosquitto.conf").write_text(f"listener {broker} 127.0.0.1\nallow_anonymous true\n")
start(programs / "meshpost-hub", "serve", "--config", folder / "hub.toml")
start("mosquitto", "-c", folder / "mosquitto.conf")
to_hub = f'[[upstream]]\nname = "hub"\nurl = "http://127.0.0.1:{hub}"\ntoken_file = "{folder}/token"\n'
to_broker = f'[[upstream]]\nname = "broker"\nkind = "mqtt"\nurl = "mqtt://127.0.0.1:{broker}"\n'
away = '[[upstream]]\nname = "away"\nurl = "http://127.0.0.1:9"\n'
kinds = {
    "the radio alone": "", "and a hub, live link": to_hub, "and an MQTT broker": to_broker, "and a hub that is away": away,
    "without a radio": "none", "watched by a service manager (4 min)": "watched",
}
rows = []
try:
    for number, (name, upstream) in enumerate(kinds.items()):
        place = folder / str(number)
        place.mkdir()
        if upstream != "none":
            start(programs / "meshpost-radio", "--clock", "now", "--nodes", 1, "--keep", "--tty", f"r0={place}/tty")
            until("the radio", lambda: (place / "tty").exists())
        text = f'[radio]\nlink = "serial:{place}/tty"\n[store]\nlocation = "{place}/gw.db"\n[control]\nsocket = "{place}/ctl"\n'
        (place / "gw.toml").write_text(text + (upstream if upstream.startswith("[[") else ""))
        command = [programs / "meshpostd", "--config", place / "gw.toml"]
        daemon = start(root / "hardware/keeper", "--watchdog", 240, *command) if upstream == "watched" else start(*command)
        until("the sync", lambda: status(place / "ctl")["sync"]["state"] == "synced" or upstream == "none")
        process = daemon.pid
        if upstream == "watched":
            process = int(subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout.split()[0])
        rows.append((name, place, process))
    time.sleep(30)
    before = [switches(process) for _, _, process in rows]
    time.sleep(seconds)
    after = [switches(process) for _, _, process in rows]
    print("| idle gateway | wake-ups a minute |\n|---|---|")
    for (name, _, _), first, last in zip(rows, before, after):
        print(f"| {name} | {(last - first) * 60 / seconds:.1f} |")
finally:
    for process in started:
        process.terminate()
        process.wait()
    shutil.rmtree(folder)
