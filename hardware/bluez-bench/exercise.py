"""Runs inside the guest: a gateway with its radio over Bluetooth, and everything that can go wrong with it.

    exercise.py PROGRAMS LOGS [FAULT ...]

Behind the Bluetooth radio is a `meshpost-radio` on TCP. After each fault a message is sent over the mesh, and has to reach
the store without anybody touching the gateway; the seconds that took are printed (the guest is about ten times slower
than a computer). $BENCH_DROPS: how often the link drops (20). Exits with 0 when everything that was sent is in the store once.
"""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

# The folder that the host sees is no place for a database: its file system cannot map SQLite's shared memory.
programs, logs, folder = sys.argv[1], sys.argv[2], "/run/gateway"
wanted = sys.argv[3:]
os.makedirs(folder, exist_ok=True)
os.chmod(folder, 0o777)  # the gateway is not root, as in the field
address, pin, sent = "C0:FF:EE:00:00:01", "123456", []
started = time.monotonic()


def say(words):
    print(f"{time.monotonic() - started:6.1f} s  {words}", flush=True)


def control(line):
    with open("/run/bench/radio.ctl", "w") as pipe:
        pipe.write(line + "\n")


class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(f"{folder}/ctl")


def ask(target, method="GET", body=None):
    connection = Local("gateway")
    connection.request(method, target, body)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return text


def status():
    try:
        return json.loads(ask("/v1/status"))
    except (OSError, ValueError):
        return {}


def until(condition, limit, what):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.2)
    say(f"FAILED: {what} within {limit} s; status: {json.dumps(status().get('radio'))}")
    sys.exit(1)


def stored():
    rows = [json.loads(line) for line in ask("/v1/messages?limit=100000").splitlines()]
    return [row["text"] for row in rows]


def flows(what, limit=240):
    """A message sent now arrives."""
    begin = time.monotonic()
    text = f"after {what}"
    sent.append(text)
    radio.stdin.write(f"dm r1 r0 {text}\n")
    radio.stdin.flush()
    until(lambda: text in stored(), limit, f"a message after {what}")
    say(f"{what}: a message arrived after {time.monotonic() - begin:.1f} s")


def start_gateway():
    return subprocess.Popen(
        [f"{programs}/meshpostd", "--config", f"{folder}/gw.toml"], stderr=open(f"{logs}/gateway.log", "a"),
        user="nobody", group="nogroup", extra_groups=[])


def down(limit=60):
    until(lambda: status().get("radio", {}).get("state") != "up", limit, "the loss was noticed")


def drops():
    for number in range(int(os.environ.get("BENCH_DROPS") or 20)):
        control("drop")
        down()
        flows(f"drop {number + 1}")


def silence():
    control("silence")
    control("drop")
    down()
    time.sleep(40)  # out of range for longer than a scan
    say(f"silent: {status()['radio'].get('error')}")
    control("advertise")
    flows("radio out of range")


def deaf():
    # From the log: the state that says so may be over before it is asked for.
    log = pathlib.Path(logs, "gateway.log")
    before = log.stat().st_size
    control("deaf")
    ask("/v1/sync", "POST")
    until(lambda: b"stopped answering" in log.read_bytes()[before:], 120, "it was noticed that the radio is deaf")
    say("deaf: noticed")
    control("hear")
    flows("deaf radio")


def bond_lost_by_radio():
    control("unpair")
    control("drop")
    down()
    flows("bond lost by the radio", 400)


def bond_lost_by_host():
    subprocess.run(["bluetoothctl", "remove", address], capture_output=True, timeout=60)
    down()
    flows("bond lost by this machine", 300)


def power():
    subprocess.run(["bluetoothctl", "power", "off"], capture_output=True, timeout=60)
    down()
    flows("adapter off")


def killed():
    subprocess.run(["pkill", "-9", "-x", "bluetoothd"])
    down()
    flows("bluetoothd killed")


def bus():
    subprocess.run(["pkill", "-9", "-x", "dbus-daemon"])
    down()
    os.path.exists("/run/dbus/pid") and os.unlink("/run/dbus/pid")
    subprocess.run(["dbus-daemon", "--system", "--fork"], check=True)
    flows("D-Bus restarted")


faults = {
    "drops": drops, "silence": silence, "deaf": deaf, "bond-radio": bond_lost_by_radio, "bond-host": bond_lost_by_host,
    "power": power, "killed": killed, "bus": bus,
}

radio = subprocess.Popen(
    [f"{programs}/meshpost-radio", "--nodes", "2", "--contacts", "20", "--clock", "now", "--advertise", "--airtime", "0", "--tcp", "r0=5500"],
    stdin=subprocess.PIPE, stdout=open(f"{logs}/radio.json", "w"), text=True)


def meshpost(*arguments):
    done = subprocess.run(
        [f"{programs}/meshpost", *arguments, "--socket", f"{folder}/ctl"], capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout + done.stderr


# A frame of the full length to the radio, before there is a gateway.
answer = subprocess.run(
    [f"{programs}/meshpost-bench", "bluetooth", address, pin], stdout=subprocess.PIPE, text=True, timeout=240).stdout
say(f"a frame of the full length to the radio: {answer.strip()}")
assert '"sent":176,"answer":"00"' in answer, answer
assert any(len(line.split()[-1]) == 352 for line in open("/run/bench/radio.log") if line.startswith("frame to radio"))

# An operator's commands, with a gateway whose radio is elsewhere.
open(f"{folder}/gw.toml", "w").write(
    f'[radio]\nlink = "tcp:127.0.0.1:1"\n[store]\nlocation = "{folder}/gw.db"\n[control]\nsocket = "{folder}/ctl"\n')
gateway = start_gateway()
until(status, 60, "the control socket")
for words, expected in (
    (("radio", "forget", address), "removed "),
    (("radio", "scan", "--seconds", "15"), address),
    (("radio", "pair", address, "--pin", "999999"), "refused the PIN"),
    (("radio", "pair", address, "--pin", pin), "paired with"),
    (("doctor", "bluetooth"), "is on"),
    (("radio", "forget", address), "removed "),
):
    code, output = meshpost(*words)
    say(f"meshpost {' '.join(words)}: {output.strip()} ({code})")
    assert expected in output, output
gateway.terminate()
gateway.wait(30)

open(f"{folder}/gw.toml", "w").write(
    f'[radio]\nlink = "ble:{address}"\npin = "{pin}"\n[store]\nlocation = "{folder}/gw.db"\n'
    f'[control]\nsocket = "{folder}/ctl"\n[log]\nlevel = "debug"\n')
gateway = start_gateway()
until(lambda: status().get("sync", {}).get("state") == "synced", 240, "the first sync")
found = status()
say(f"synced: {found['store']['contacts_on_radio']} contacts, {found['radio'].get('rssi')} dBm")
assert found["store"]["contacts_on_radio"] >= 20, found
assert any("Public" in line for line in ask("/v1/channels").splitlines())
long = "x" * 158 + "ø"
sent.append(long)
radio.stdin.write(f"dm r1 r0 {long}\n")
radio.stdin.flush()
until(lambda: long in stored(), 120, "a frame of the full length")
say("a frame of 176 bytes arrived")
for name in wanted or faults:
    faults[name]()
texts = stored()
lost = [text for text in sent if text not in texts]
doubled = [text for text in set(texts) if texts.count(text) > 1]
say(f"sent {len(sent)}, lost {lost}, doubled {doubled}")
counters = status()["sync"]["counters"]
say(f"connections {counters['connections']}, resident {status()['resident_kib']} KiB")
gateway.terminate()
code = gateway.wait(30)
say(f"the gateway ended with {code}")
radio.kill()
sys.exit(1 if lost or doubled or code else 0)
