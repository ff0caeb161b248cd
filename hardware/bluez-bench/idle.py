"""Runs inside the guest: what it costs to stay connected, over Bluetooth, over serial, and with PyPI `bleak`.

    idle.py PROGRAMS [SECONDS]      PROGRAMS: stripped release programs; prints a JSON object for each
"""
import http.client
import json
import os
import socket
import subprocess
import sys
import time

programs, seconds, folder = sys.argv[1], int((sys.argv + ["120"])[2]), "/run/gateway"
os.makedirs(folder, exist_ok=True)
address, pin = "C0:FF:EE:00:00:01", "123456"

CLIENT = """
import asyncio
from bleak import BleakClient, BleakScanner

async def main():
    found = await BleakScanner.find_device_by_address("C0:FF:EE:00:00:01", timeout=30)
    async with BleakClient(found, timeout=40) as client:
        await client.start_notify("6E400003-B5A3-F393-E0A9-E50E24DCCA9E", lambda _, frame: None)
        print("connected", flush=True)
        await asyncio.sleep(100000)

asyncio.run(main())
"""


class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(f"{folder}/ctl")


def is_synced():
    try:
        connection = Local("gateway")
        connection.request("GET", "/v1/status")
        return json.loads(connection.getresponse().read())["sync"]["state"] == "synced"
    except (OSError, ValueError):
        return False


def switches(process):
    total = 0
    for task in os.listdir(f"/proc/{process.pid}/task"):
        for line in open(f"/proc/{process.pid}/task/{task}/status"):
            if line.startswith("voluntary"):
                total += int(line.split()[1])
    return total


def measure(what, process):
    time.sleep(10)
    before, begin = switches(process), time.monotonic()
    time.sleep(seconds)
    minutes = (time.monotonic() - begin) / 60
    fields = {}
    for line in open(f"/proc/{process.pid}/smaps_rollup"):
        if line.split()[0] in ("Rss:", "Pss:", "Anonymous:"):
            fields[line.split()[0][:-1].lower()] = round(int(line.split()[1]) / 1024, 1)
    wakeups = round((switches(process) - before) / minutes, 1)
    print(json.dumps({"bench": what, "wakeups_per_minute": wakeups, **fields}), flush=True)
    process.terminate()
    process.wait(30)
    time.sleep(5)


def gateway(what, link):
    open(f"{folder}/gw.toml", "w").write(
        f'[radio]\nlink = "{link}"\npin = "{pin}"\n[store]\nlocation = "{folder}/{what}.db"\n[control]\nsocket = "{folder}/ctl"\n')
    process = subprocess.Popen([f"{programs}/meshpostd", "--config", f"{folder}/gw.toml"], stderr=subprocess.DEVNULL)
    while not is_synced():
        time.sleep(0.5)
    measure(what, process)


subprocess.Popen(
    [f"{programs}/meshpost-radio", "--nodes", "2", "--contacts", "100", "--clock", "now", "--advertise", "--tcp", "r0=5500",
     "--tty", f"r1={folder}/tty", "--keep"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
while not os.path.exists(f"{folder}/tty"):
    time.sleep(0.1)
gateway("serial", f"serial:{folder}/tty")
gateway("bluetooth", f"ble:{address}")
# The bond is there: bleak needs no agent.
client = subprocess.Popen([os.environ["BENCH_PYTHON"], "-c", CLIENT], stdout=subprocess.PIPE, text=True)
assert client.stdout.readline().strip() == "connected"
measure("bleak", client)
