# SPDX-License-Identifier: MIT
"""Supplements to the documents: values for placeholders, answers, other exit codes, and examples that run elsewhere.

An entry belongs to one printed line, without the remark behind it. Its keys:

put        values for the words that stand for one
before     what the stage does first, in the same shell; `after`: afterwards
answers    pairs: what is waited for (a regular expression), what is typed then
ends       what is waited for before Ctrl-C ends it; as a pair, what is typed in place of Ctrl-C
when       a condition (of a shell) before Ctrl-C ends it, where it shows nothing
typed      what is typed, with {printed} in it: of what is printed and is no whole command line
file       where a program is saved that is printed, and `run`: how it is run
code       the exit code, where it is another than 0; `because` says why
shows      what it must show (a regular expression)
elsewhere  it is not run here: why, and what runs it
named      a sentence names a command without what it needs; why that is not a whole command line
"""

HELPERS = r"""
air() { echo "$*" >/run/mesh/ctl; }
until_true() { until eval "$1" >/dev/null 2>&1; do sleep 0.1; done; }
heard() { until meshpost messages | grep -q "$1"; do air "${@:2}"; for look in $(seq 100); do meshpost messages | grep -q "$1" && return; sleep 0.1; done; done; }
synced() { until_true "meshpost sync | grep -q synced && meshpost contacts | grep -q Lobby"; }
identity() { grep -o '"id":"[^"]*' "$1" | head -1 | cut -d '"' -f 4; }
number() { meshpost messages --json | grep "$1" | grep -o '"id":[0-9]*' | head -1 | cut -d : -f 2; }
attach() { ln -sfn "$(readlink "/run/mesh/$1.tty")" /dev/ttyACM0; systemctl restart meshpost; synced; }
"""

BUILDS = "it builds, or installs what is built: a test that is run by `make test` cannot run it"
MACHINE = "needs a machine with systemd and a package manager: hardware/machine/exercise.py (MachineTests)"
BLUETOOTH = "needs Bluetooth: hardware/bluez-bench (BluetoothTests)"
EVERYWHERE = "*"

DOCUMENTS = {}
LONG = ()


def _fits(document, printed):
    for place in (document, EVERYWHERE):
        # A block is known by its first line, a script by the comment in its second line.
        lines = printed.text.splitlines()
        for key in (printed.key, lines[1] if printed.kind == "script" else lines[0]):
            if key in DOCUMENTS.get(place, {}):
                return place, key
    return None


def entry(document, printed, used=None):
    """The entry of a printed line; {}: it is run as it is; None: nothing is run for it."""
    found = _fits(document, printed)
    if found:
        if used is not None:
            used.add(found)
        return DOCUMENTS[found[0]][found[1]]
    return None if printed.kind == "shown" else {}


def is_run(document, printed):
    found = entry(document, printed)
    return found is not None and "elsewhere" not in found and "named" not in found


def keys():
    return {(document, key) for document, table in DOCUMENTS.items() for key in table}

# A command that is printed in a sentence of several documents.
DOCUMENTS[EVERYWHERE] = {
    "meshpost-hub settings": {"named": "docs/observability.md runs it"},
    "meshpost-hub gateways remove ID": {
        "put": {"ID": "nobody"}, "code": 67, "because": "no such gateway was ever here; HubOperationTests removes one", "shows": "was ever here"},
    "sudo meshpost-hub gateways remove ID": {
        "put": {"ID": "nobody"}, "code": 67, "because": "no such gateway was ever here; HubOperationTests removes one", "shows": "was ever here"},
    "meshpost-hub gateways remove": {"named": "the section before has it whole"},
    "meshpost node clock --clock-is-right": {"code": 64, "because": "the clock of this machine is not synchronised"},
    "make run": {"elsewhere": f"{BUILDS}; what it runs then is hardware/quickstart, by MainJobTests"},
    "make test": {"elsewhere": "it is what runs this"},
    "make quick": {"elsewhere": f"{BUILDS}: by hand"},
    "make simulate SEED=1 N=1000 DAYS=7": {"elsewhere": f"{BUILDS}: by hand; SeedsTests runs the first seeds"},
    "make fuzz": {"elsewhere": f"{BUILDS}: by hand"},
    "make sanitize": {"elsewhere": f"{BUILDS}: by hand"},
    "make sanitize SANITIZER=address": {"elsewhere": f"{BUILDS}: by hand"},
    "make build": {"elsewhere": f"{BUILDS}: `make bench` and `make deb` do"},
    "make deb": {"elsewhere": f"{BUILDS}: `make machine` makes the packages, {MACHINE} installs them"},
    "make site": {"elsewhere": f"{BUILDS}: it takes ten seconds, and installs what is missing"},
    "make container": {"elsewhere": f"{BUILDS}: by hand, and then deploy/container/try"},
    "make deb-arm64": {"elsewhere": f"{BUILDS}: by hand, before a release"},
    "make test-arm64": {"elsewhere": f"{BUILDS}: by hand, after `make deb-arm64`"},
    "meshpost radio scan": {"elsewhere": BLUETOOTH},
    "meshpost-hub consume": {"elsewhere": "ConsumeProgramTests, with brokers that are there"},
    "hardware/acceptance": {"elsewhere": "AcceptanceTests has it try a virtual radio"},
    "meshpost upstream add": {"named": "of what, and where to, follows from the sentence: docs/first-ten-minutes.md has it whole"},
    "meshpost send": {"named": "docs/sending.md has it whole"},
    "meshpost retry": {"named": "docs/sending.md has it whole"},
    "meshpost node": {"named": "all of its commands are meant"},
    "meshpost connect": {"named": "`ssh` runs it over there, for whoever uses --host"},
    "curl --unix-socket": {"named": "docs/control-socket.md has it whole"},
    "meshpost doctor": {"shows": "ok +radio"},
    "meshpost doctor bluetooth": {"code": 1, "because": "this machine has no Bluetooth, and that is what it says"},
    "meshpostd --check --config FILE": {"put": {"FILE": "/etc/meshpost/meshpostd.toml"}},
    "meshpost messages --follow": {"before": "heard evening chan Birch 0 good evening", "ends": "good evening"},
    "meshpost backup": {"named": "docs/care.md has it whole, with the file"},
    "meshpost export": {"named": "docs/README.md has it whole"},
    "meshpost setup": {
        "answers": [("Which radio|Keep the radio", "\n"), ("Forward|another server", "n\n"), ("neighbours|gateway is running", "\n")], "shows": "the radio is up"},
    "meshpost run": {
        "before": "systemctl stop meshpost", "ends": "synced with the radio", "after": "systemctl start meshpost; synced"},
    "meshpost top": {"ends": "q quit"},
    "meshpost web": {"ends": "secret="},
    "meshpost web password": {"answers": [("password:", "correct horse\n"), ("repeat", "correct horse\n")], "shows": "password set"},
    "meshpost-hub people add": {"named": "docs/hub.md has it whole"},
    "apt purge meshpost": {"elsewhere": MACHINE},
    "hardware/keeper": {"named": "what it keeps follows from the sentence; ReplacementTests and others run it"},
}

# The hub's example has it as a comment.
RETENTION = "printf '[retention]\\npackets = \"7d\"\\n' >> /etc/meshpost-hub/hub.toml"

DOCUMENTS["README.md"] = {
    "sudo apt install ./meshpost_0.1.0_arm64.deb": {"elsewhere": MACHINE},
    "sudo meshpost setup": {
        "answers": [
            ("Which radio", "1\n"), ("Forward messages", "y\n"), ("URL", "https://hub.example.org\n"), ("Name ", "\n"),
            ("Token", "a-token-for-the-documents\n"), ("May hub send", "n\n"),
            ("stored here already", "\n"), ("Add another server", "n\n"), ("neighbours", "y\n")],
        "shows": "hub answers and accepts this gateway"},
    "MESHPOST_SOCKET=$PWD/run/control.sock .build/debug/meshpost status": {
        "before": """
systemctl stop meshpost meshpost-hub; hardware/quickstart >/tmp/quickstart.log 2>&1 & quickstart=$!
until_true 'grep "synced with the radio" /tmp/quickstart.log'""",
        "after": "kill $quickstart; wait $quickstart; systemctl start meshpost-hub meshpost; synced", "shows": "hub +(idle|sending|waiting)"},
}
DOCUMENTS["docs/README.md"] = {
    "meshpostd --config FILE": {
        "put": {"FILE": "/tmp/own.toml"},
        "before": r"""
systemctl stop meshpost
printf '[store]\nlocation = "/tmp/own.db"\n[control]\nsocket = "/tmp/own.sock"\n' >/tmp/own.toml""",
        "ends": "synced with the radio", "after": "systemctl start meshpost; synced"},
    "meshpost radio pair ADDRESS": {"elsewhere": BLUETOOTH},
    "meshpost send NAME hello --wait": {"put": {"NAME": "Birch"}, "shows": "delivered"},
    "meshpost send '#channel' hello": {"before": "meshpost channel add '#channel'"},
    "meshpost node login NAME": {"put": {"NAME": "Ridge"}, "answers": [("assword", "password\n")]},
    "meshpost node status": {"named": "the node's name was said just before"},
    "meshpost upstream test NAME": {
        "before": "sudo meshpost setup --unattended --upstream hub=https://hub.example.org --token-file hub=/root/hub.token", "put": {"NAME": "hub"}},
    "meshpost journal --follow": {"ends": '"|advert|contact'},
    "meshpost-hub serve --config FILE": {
        "put": {"FILE": "/etc/meshpost-hub/hub.toml"}, "before": "systemctl stop meshpost-hub", "ends": "listening", "after": "systemctl start meshpost-hub"},
    "meshpost chat NAME": {"put": {"NAME": "Birch"}, "ends": "Birch"},
    "meshpost search storm batter*": {
        "before": "air dm Birch r0 the storm took our batteries; until_true 'meshpost messages | grep batteries'", "shows": "batteries"},
    "meshpost messages --from NAME --since 2d": {"put": {"NAME": "Birch"}, "shows": "batteries"},
    "meshpost chart signal NAME --output signal.svg": {"put": {"NAME": "Birch"}},
    "meshpost node alias": {"named": "of which node, and what, follows from the sentence: docs/documents.md has it whole"},
    "man docs/man/meshpost.1": {"answers": [("MESHPOST", "q")]},
}
DOCUMENTS["docs/control-socket.md"] = {
    "curl --unix-socket /run/meshpost/control.sock http://meshpost/v1/status": {"shows": '"state":"synced"'},
    "curl -N --unix-socket /run/meshpost/control.sock 'http://meshpost/v1/events?follow=1'": {"ends": '"kind":"advert"|"kind":"contact"'},
}

DOCUMENTS["docs/benchmarks.md"] = {
    line: {"elsewhere": "it measures for many minutes, on a machine that does nothing else: by hand"}
    for line in (
        "make bench", "./Benchmarks/run search", "./Benchmarks/run delivery", "./Benchmarks/run latency", "./Benchmarks/run mqtt", "./Benchmarks/run wakeups",
        "./Benchmarks/run wire", "./Benchmarks/run uplink", "python3 Benchmarks/doors.py .build/release",
        "python3 Benchmarks/memory.py BEFORE AFTER --alone --messages 3000 --patience 30 --limits 0 16 14 12 10",
        "python3 Benchmarks/memory.py BEFORE AFTER --pages --messages 2000", "./Benchmarks/flash.py .build/release --speed 10", "hardware/machine/exercise.py measure")
} | {"meshcore-cli msg -a": {"named": "it names a client that was measured"}}
DOCUMENTS["docs/scaling.md"] = {
    "meshpost-hub purge": {"named": "docs/observability.md has it whole"},
    "make bench-fleet": {"elsewhere": "it builds, and measures for an hour: by hand; two of its scenes are run by FleetTests"},
    "Benchmarks/fleet/patroni.py FOLDER": {"elsewhere": "it builds a cluster: FleetTests has it, by the next line"},
    "./Benchmarks/fleet/run --rounds 12 failover": {"elsewhere": "many minutes: FleetTests runs it with two rounds"},
}
DOCUMENTS["docs/endurance.md"] = {
    "python3 Benchmarks/endurance.py .build/release --minutes 120": {"elsewhere": "it takes two hours: by hand"},
    "swift build $(./deploy/release-flags) --product meshpost-simulate": {"elsewhere": "Tests/build does it"},
    "python3 Benchmarks/endurance.py .build/release --weeks 8": {"elsewhere": "it takes half an hour: by hand; SeedsTests has a week"},
}
DOCUMENTS["docs/stability.md"] = {
    "hardware/compat --old ~/release-before --new .build/release": {"elsewhere": "it needs the programs of a release before: by hand"},
}
DOCUMENTS["docs/bluetooth.md"] = {
    "[radio]": {"only_checked": True},
    "meshpost radio pair C0:FF:EE:00:00:01": {"elsewhere": BLUETOOTH},
    "meshpost radio forget C0:FF:EE:00:00:01": {"elsewhere": BLUETOOTH},
}
DOCUMENTS["docs/care.md"] = {
    "meshpost node access Ridge": {"before": "echo password | meshpost node login Ridge"},
    "meshpost node login": {"named": "docs/sending.md has it whole"},
    "meshpost node regions Ridge": {"elsewhere": "RegionTests, and hardware/firmware with a repeater's own code"},
    "meshpost radio regions": {"elsewhere": "RegionTests, and hardware/firmware with a repeater's own code"},
    "meshpost channel region '#hilltop' ottawa": {"before": "meshpost channel add '#hilltop'"},
    "meshpost channel add 'meshcore://channel/add?name=Club&secret=…&region_scope=ottawa'": {"put": {"…": "00112233445566778899aabbccddeeff"}},
    "meshpost radio set 'flood-scope=$club' flood-scope-key=HEX": {"put": {"HEX": "00112233445566778899aabbccddeeff"}},
    "meshpost radio backup hilltop.radio --force --private-key": {
        "answers": [("passphrase", "a long passphrase\n"), ("repeat", "a long passphrase\n")]},
    "meshpost radio restore hilltop.radio": {"answers": [("Continue", "y\n")]},
    "systemctl start meshpost": {"after": "synced"},
}
DOCUMENTS["docs/companion-proxy.md"] = {
    "meshcore-cli -t 127.0.0.1 -p 5000 infos": {"shows": "public_key"},
    'listen = "0.0.0.0:5000"': {"above": '[[proxy]]\nname = "anybody"\n', "put": {":5000": ":5002"}},
    "ssh -L 5000:127.0.0.1:5000 pi@hilltop": {"answers": [(r"\$", "exit\n")]},
}
DOCUMENTS["docs/documents.md"] = {
    "meshpost node alias NODE [TEXT]": {"put": {"NODE": "Birch", "[TEXT]": "'under the tree'"}},
    "meshpost node note NODE [TEXT]": {"put": {"NODE": "Birch", "[TEXT]": "'by the pond'"}},
    "meshpost node tag NODE [TAG …]": {"put": {"NODE": "Birch", "[TAG …]": "pond tree"}},
    "meshpost channel relay CHANNEL on|off|configured": {"put": {"CHANNEL": "Public", "on|off|configured": "on"}},
    "meshpost contacts --json": {"shows": "by the pond"},
}
DOCUMENTS["docs/hooks.md"] = {
    '# "light on", "light off"': {
        "file": "/usr/local/bin/light", "before": "printf '#!/bin/sh\\n' >/usr/local/bin/pinctrl; chmod +x /usr/local/bin/pinctrl",
        "run": """echo '{"body":{"text":"light on"}}' | light""", "shows": "the light is on"},
    '# kinds = ["telemetry"]: tell a channel when a node\'s battery is low': {
        "file": "/usr/local/bin/low", "before": "meshpost channel add '#service'",
        "run": """echo '{"body":{"name":"Ridge","readings":[{"type":"voltage","value":3.1}]}}' | low && meshpost messages""",
        "shows": "#service.* Ridge is at 3.1 V"},
    "meshpost upstream retry hook/NAME": {"put": {"NAME": "ping"}},
    "meshpost upstream test hook/NAME": {"put": {"NAME": "ping"}},
    "meshpost upstream pause hook/NAME": {"put": {"NAME": "ping"}},
    "meshpost upstream skip hook/NAME": {"put": {"NAME": "ping"}, "code": 64, "because": "the hook takes all: there is nothing to skip"},
}
DOCUMENTS["docs/installation.md"] = {
    "sudo apt install ./meshpost_*.deb": {"elsewhere": MACHINE},
    "sudo meshpost setup": {
        "answers": [("Which radio", "\n"), ("Forward messages", "\n"), ("neighbours", "\n")], "shows": "the radio is up"},
    "sudo meshpost setup --unattended --name hilltop --upstream https://hub.example.org --token-file /root/hub.token": {
        "shows": "hub answers and accepts this gateway"},
    "sudo meshpost setup --unattended --link ble:Hilltop --pin-file /root/pin --upstream field=mqtts://broker.example.org --user field=hilltop "
    "--token-file field=/root/secret": {
        "before": "echo 123456 >/root/pin; echo secret >/root/secret", "code": 69, "because": "this machine has no Bluetooth; MachineTests has neither",
        "shows": "field answers and accepts this gateway"},
    "sudo adduser NAME meshpost": {"put": {"NAME": "pi"}},
    "journalctl -u meshpost": {"elsewhere": MACHINE},
    "meshpostd --config FILE": {
        "put": {"FILE": "/tmp/own.toml"},
        "before": r"""
systemctl stop meshpost
printf '[store]\nlocation = "/tmp/own.db"\n[control]\nsocket = "/tmp/own.sock"\n' >/tmp/own.toml""",
        "ends": "synced with the radio", "after": "systemctl start meshpost"},
}
DOCUMENTS["docs/proxies.md"] = {
    "meshpost upstream test NAME": {"elsewhere": "ProxyUpstreamTests has upstreams behind real proxies"},
    "sudo systemctl edit meshpost": {"elsewhere": "it opens an editor for systemd's own files"},
}
DOCUMENTS["docs/meshcore-cli.md"] = {
    "meshpost send NAME TEXT --wait": {"put": {"NAME": "Birch", "TEXT": "hello"}, "shows": "delivered"},
    "meshpost send '#CHANNEL' TEXT": {"before": "meshpost channel add '#pond'", "put": {"CHANNEL": "pond", "TEXT": "hello"}},
    "meshpost chat NAME": {"put": {"NAME": "Birch"}, "ends": "Birch"},
    "meshpost channel add": {"named": "docs/first-ten-minutes.md has it whole"},
    "meshpost channel remove": {"named": "`meshpost channel --help` has it whole"},
    "meshpost channel region": {"named": "docs/care.md has it whole"},
    "meshpost node region": {"named": "docs/care.md has it whole"},
    "meshpost contact path NAME": {"named": "docs/sending.md has it whole"},
    "meshpost contact": {"named": "all of its commands are meant"},
    "meshpost node login": {"named": "docs/sending.md has it whole"},
    "meshpost node cli": {"named": "docs/sending.md has it whole"},
    "meshpost node trace": {"named": "docs/sending.md has it whole"},
    'for node in Ridge Valley; do meshpost node status "$node"; done': {
        "before": "echo password | meshpost node login Ridge", "put": {"Ridge Valley": "Ridge"}},
}
DOCUMENTS["docs/when-it-does-not-work.md"] = {
    "sudo systemctl restart meshpost": {"after": "synced"},
    "sudo adduser NAME meshpost": {"put": {"NAME": "pi"}},
}
DOCUMENTS["docs/mqtt.md"] = {
    "[[upstream]]": {"before": "(umask 077; echo secret >/etc/meshpost/credentials/broker.password)"},
    "# decode.py: payloads in hex, one a line → events as JSON, one a line": {
        "elsewhere": "CompactTests runs it behind a real broker"},
    "mosquitto_sub -h broker.example.org -q 1 -t meshpost/+/compact -F %x | python3 decode.py": {
        "elsewhere": "CompactTests, with a broker that is there"},
}
DOCUMENTS["docs/consume.md"] = {
    name: {"elsewhere": "ConsumeProgramTests, with brokers that are there"}
    for name in ("meshpost-hub serve", "systemctl enable --now meshpost-hub-consume", "[consume]",
                 'database = "postgresql://meshpost@db.example.org/meshpost"')
}
NOISE = "(while sleep 0.2; do air advert Birch; done) & noise=$!"
DOCUMENTS["docs/observability.md"] = {
    "journalctl -u meshpost": {"elsewhere": MACHINE},
    "journalctl -u meshpost MESHPOST_UPSTREAM=hub": {"elsewhere": MACHINE},
    "journalctl -u meshpost MESHPOST_LINK=serial:/dev/ttyACM0 -p warning": {"elsewhere": MACHINE},
    "meshpost capture - --format hex": {"before": NOISE, "ends": "[0-9a-f]{60}", "after": "kill $noise"},
    "meshpost capture - --frames": {"ends": '"hex"'},
    "curl --unix-socket /run/meshpost/control.sock http://localhost/metrics": {"shows": "meshpost_radio_up.* 1"},
    "meshpost capture air.pcap --seconds 10m": {"before": NOISE, "when": "tshark -r /opt/meshpost/air.pcap | grep -q .", "after": "kill $noise"},
    "meshpost capture - --format jsonl": {"before": NOISE, "ends": '"raw":"[0-9a-f]{60}', "after": "kill $noise"},
    "meshpost capture link.jsonl --frames": {"when": "grep -q hex /opt/meshpost/link.jsonl"},
    "journalctl -u meshpost-hub": {"elsewhere": MACHINE},
    "journalctl -u meshpost-hub -p warning": {"elsewhere": MACHINE},
    "meshpost-hub doctor": {"code": 1, "because": "a machine of namespaces sets no clock", "shows": "it is ready on 127.0.0.1"},
    "meshpost-hub stats": {"shows": "gateways  0"},
    "meshpost-hub settings": {"shows": "no snapshot is stored"},
    "meshpost-hub backup FILE": {"put": {"FILE": "/tmp/hub.copy"}, "shows": "verified"},
    "meshpost-hub purge": {"named": "how it is called follows below"},
    "meshpost-hub backup /var/backups/hub-2026-11-23.db": {"shows": "verified"},
    "systemctl start meshpost-hub": {"after": "until_true 'meshpost-hub doctor | grep ready'"},
    "createdb --owner meshpost mesh2": {"elsewhere": "HubOperationTests restores a dump on a server of its own"},
    "pg_restore --no-owner --role=meshpost --exit-on-error --dbname=mesh2 /var/backups/hub-2026-11-23.dump": {
        "elsewhere": "HubOperationTests restores a dump on a server of its own"},
    "meshpost-hub purge --older-than 90d --kind packet --dry-run": {"shows": "would delete nothing"},
    "meshpost-hub purge --older-than 90d --kind packet --yes": {"shows": "deleted nothing"},
    "meshpost-hub purge --retention --dry-run": {"before": RETENTION, "shows": "would delete nothing"},
    "meshpost-hub purge --retention --yes": {"shows": "deleted nothing"},
}
DOCUMENTS["docs/alerts.md"] = {
    "meshpost node status": {"named": "docs/sending.md has it whole"},
    'meshpost alerts acknowledge 1 --note "on my way"': {
        "before": r"""
cp /etc/meshpost/meshpostd.toml /tmp/before.toml
sed -i '/^\[alerts\]/a disk_free = "1048576 GiB"' /etc/meshpost/meshpostd.toml
systemctl reload meshpost; until_true 'meshpost alerts --open --json | grep disk_full'""",
        "after": "cp /tmp/before.toml /etc/meshpost/meshpostd.toml; systemctl reload meshpost", "shows": "acknowledged by .*on my way"},
}

DOCUMENTS["docs/pages.md"] = {
    "meshpost web --tiles 'https://tiles.example.org/{z}/{x}/{y}.png' --tiles-credit '© whoever drew it'": {"ends": "secret="},
    "meshpost --host ssh://pi@hilltop web": {"ends": "secret="},
}

DOCUMENTS["docs/pictures.md"] = {
    "meshpost --host ssh://pi@hilltop map --background coast.geojson --output hilltop.html": {
        "before": """echo '{"type":"LineString","coordinates":[[8.5,47.3],[8.6,47.4]]}' >coast.geojson"""},
}
DOCUMENTS["docs/sending.md"] = {
    "meshpost send '#trees' good morning": {"before": "meshpost channel add '#trees'"},
    'meshpost send Birch "are you there?" --wait': {"shows": "delivered"},
    "meshpost sent; meshpost retry ID; meshpost cancel ID": {
        "before": """
meshpost contact add c853ad0f0cd2b619aea92ceec4fd56a24d6499d584ce79257e45cfd8139b60a7 --name Nobody
meshpost send Nobody hello --json >sent; meshpost cancel $(identity sent)""",
        "put": {"ID": "$(identity sent)"}},
    "meshpost sent adopt ID": {
        "before": "meshpost send Nobody one --json >one; meshpost send Nobody two --json >two; attach Larch; meshpost contact add Nobody",
        "put": {"ID": "$(identity one)"}},
    "meshpost sent cancel ID": {"put": {"ID": "$(identity two)"}},
    "meshpost radio list": {"after": "attach r0"},
    "meshpost radio restore FILE --private-key": {
        "before": "printf 'a long passphrase\\n' | meshpost radio backup own --private-key", "put": {"FILE": "own"},
        "answers": [("passphrase", "a long passphrase\n"), ("Continue", "y\n")]},
    "meshpost react NUMBER 👍": {
        "before": "air dm Birch r0 do you like this; until_true 'meshpost messages | grep like'",
        "put": {"NUMBER": "$(number 'do you like this')"}},
    "meshpost room login Lobby": {"answers": [("assword", "password\n")]},
    "meshpost room read Lobby": {"before": "air post Lobby a first post; until_true 'meshpost room read Lobby | grep first'"},
    "meshpost node login Ridge": {"answers": [("assword", "password\n")]},
    "meshpost node cli Ridge get radio": {"shows": "869"},
    "meshpost node clock Ridge": {"elsewhere": "it wants a synchronised clock: NodeTests, ClockSettingTests"},
    "meshpost node clock NAME": {"named": "the block above has it whole"},
    "meshpost node snapshot Ridge": {"elsewhere": "all the questions take minutes: RemoteNodes"},
    "meshpost node diff Ridge": {"elsewhere": "it wants two snapshots: RemoteNodes"},
    "meshpost node diff NAME 3": {"named": "the block above has it whole, with another number"},
    "meshpost node cli NAME clock sync": {"named": "a warning against it"},
    "meshpost node telemetry self": {"code": 76, "because": "pymc_core's radio does not know the question; EveryCommand asks a virtual one"},
    "meshpost contact path Ridge --discover": {"code": 69, "because": "pymc_core's radio asks otherwise than firmware does, and nobody answers that"},
    "meshpost contact add": {"named": "`meshpost contact --help` has it whole"},
    "meshpost channel add": {"named": "docs/first-ten-minutes.md has it whole"},
    "meshpost channel data": {"named": "`meshpost channel data --help` has it whole"},
    "meshpost channel add Club --new": {"shows": "meshcore://channel/add"},
}
DOCUMENTS["docs/ssh.md"] = {
    "ssh -t pi@hilltop sudo meshpost setup": {"named": "it asks; docs/first-ten-minutes.md answers the questions"},
    "ssh -F /etc/meshpost/ssh_config": {
        "typed": "echo 'LogLevel ERROR' >/etc/meshpost/ssh_config; MESHPOST_SSH='{printed}' meshpost status", "shows": "radio +up"},
    'restrict,command="meshpost connect" ssh-ed25519 AAAA… operator': {
        "typed": """ssh -O exit pi@hilltop; echo '{printed}' >/home/pi/.ssh/authorized_keys; meshpost status""",
        "put": {"ssh-ed25519 AAAA… operator": "'\"$(cat /root/.ssh/id_ed25519.pub)\"'"}, "shows": "radio +up"},
}
# Sources/Tool/Manual/Examples.swift has them, in the order of the pages.
DOCUMENTS["docs/man"] = {
    "meshpost messages --channel '#hilltop'": {"before": "meshpost channel add '#hilltop'"},
    "meshpost node login Ridge": {"answers": [("assword", "password\n")]},
    "meshpost node cli Ridge get radio": {"shows": "869"},
    "meshpost send Birch 'is the hut open?' --wait": {"shows": "delivered"},
    "sudo meshpost setup": {
        "answers": [("Which radio", "\n"), ("Forward messages", "\n"), ("neighbours", "\n")], "shows": "the radio is up"},
    "sudo meshpost setup --unattended --upstream URL --token-file FILE": {
        "put": {"URL": "https://hub.example.org", "FILE": "/root/hub.token"}, "shows": "hub answers and accepts this gateway"},
    "meshpost upstream add field URL --token-file FILE --from start": {
        "before": "echo secret >/root/secret", "put": {"URL": "mqtts://broker.example.org --set user=hilltop", "FILE": "/root/secret"},
        "shows": "added field"},
    "meshpost upstream test hook/ping": {"elsewhere": "docs/hooks.md has a hook"},
    "meshpost upstream retry hook/ping": {"elsewhere": "docs/hooks.md has a hook"},
}
DOCUMENTS["docs/webhooks.md"] = {
    "meshpost upstream skip NAME": {"put": {"NAME": "alarm"}, "code": 64, "because": "the server takes all: there is nothing to skip"},
    "meshpost upstream skip NAME SEQ": {"put": {"NAME": "alarm", "SEQ": "17"}, "code": 64, "because": "the server takes all: there is nothing to skip"},
    "meshpost upstream test NAME": {"put": {"NAME": "alarm"}},
    "meshpost upstream resume NAME": {"put": {"NAME": "alarm"}},
    "meshpost upstream test alarm": {"after": "until_true 'grep hooks.example.org /var/log/front.log'"},
}
DOCUMENTS["docs/first-ten-minutes.md"] = {
    "meshpost chat r1": {"ends": "r1"},
}
DOCUMENTS["deploy/README.md"] = {
    "systemctl stop": {"named": "docs/care.md has it whole"},
    "systemctl edit meshpost": {"elsewhere": "it opens an editor for systemd's own files"},
    "systemd-analyze security meshpost": {"elsewhere": MACHINE},
}
DOCUMENTS["udev/README.md"] = {
    "sudo cp udev/70-meshpost.rules /etc/udev/rules.d/ && sudo udevadm control --reload && sudo udevadm trigger": {"elsewhere": f"needs udev; the rules: {MACHINE}"},
    "udevadm info -a -n /dev/ttyACM0": {"elsewhere": "needs udev and a board"},
}
INSTALLED = "packages are not fetched in here; what installing them starts is started"
HUB = r"""
is_at_hub() { curl -s -H @$HOME/reader.header https://hub.example.org/v1/gateways/hilltop/messages | grep -q "$1"; }
in_file() { sudo -u meshpost-hub sqlite3 /var/lib/meshpost-hub/hub.db "SELECT count(*) FROM events"; }
in_postgres() { sudo -u postgres psql -At -c "SELECT count(*) FROM events" meshpost-hub; }
on() { sed -i '/^database_password_file/d; s|^database = .*|database = "'$1'"|' /etc/meshpost-hub/hub.toml; systemctl restart meshpost-hub; until_true 'is_at_hub evening'; }
"""
DOCUMENTS["docs/hub.md"] = {
    "sudo apt install ./meshpost-hub_*.deb curl": {
        "before": HUB + r"sed -i '/^\[\[token\]\]$/,$d' /etc/meshpost-hub/hub.toml", "typed": "systemctl restart meshpost-hub", "because": INSTALLED},
    "curl http://127.0.0.1:8787/healthz": {"shows": '"ok":true'},
    "sudo -u meshpost-hub meshpost-hub people add ana --role administer": {
        "answers": [("password:", "correct horse\n"), ("repeat", "correct horse\n")], "shows": "added ana"},
    "sudo install -m 600 /root/oidc.secret /etc/meshpost-hub/credentials/oidc.secret": {"before": "echo a-secret >/root/oidc.secret"},
    # There is no provider in here: HubOpenIDTests has two.
    "curl -s -o /dev/null -w '%{redirect_url}\\n' https://hub.example.org/oidc/start": {"shows": "signin=unavailable"},
    "sudo apt install nginx certbot python3-certbot-nginx": {"typed": "systemctl restart nginx", "because": INSTALLED},
    "sudo certbot --nginx --redirect --agree-tos --no-eff-email -m you@example.org -d hub.example.org": {
        "before": "systemctl start pebble", "shows": "Congratulations"},
    "curl https://hub.example.org/healthz": {"shows": '"ok":true'},
    # The dialogue below types the token that all documents have.
    "sudo meshpost-hub tokens add hilltop": {
        "before": "rm /etc/meshpost-hub/tokens/hilltop", "shows": "^[0-9a-f]{48}",
        "after": """
cd /etc/meshpost-hub/tokens && cp -p hilltop .new && echo a-token-for-the-documents >.new && mv .new hilltop
until_true 'curl -s -o /dev/null -w "%{http_code}" -H "Authorization: Bearer a-token-for-the-documents" http://127.0.0.1:8787/v1/gateways/hilltop | grep 404'"""},
    "sudo meshpost-hub tokens add ridge": {"shows": "^[0-9a-f]{48}"},
    "sudo meshpost-hub tokens": {"shows": "hilltop  1 token"},
    "sudo meshpost setup --name hilltop": {
        "answers": [
            ("Which radio", "1\n"), ("Forward messages", "y\n"), ("URL", "https://hub.example.org\n"), ("Name ", "\n"),
            ("Token", "a-token-for-the-documents\n"), ("May hub send", "n\n"),
            ("stored here already", "\n"), ("Add another server", "n\n"), ("neighbours", "y\n")],
        "shows": "hub answers and accepts this gateway"},
    "meshpost status": {
        "before": "heard evening chan Birch 0 good evening; until_true 'meshpost status | grep \"hub .* 0 pending\"'",
        "shows": r"hub +idle, 0 pending.*https://hub.example.org \(live\)"},
    "curl -H @$HOME/reader.header https://hub.example.org/v1/gateways": {"shows": '"gateway":"hilltop"'},
    "curl -H @$HOME/reader.header https://hub.example.org/v1/gateways/hilltop/messages": {"shows": "good evening"},
    "sudo meshpost-hub watch --token-file /etc/meshpost-hub/credentials/reader.token": {
        # It shows what arrives from now on.
        "before": "(for look in 1 2 3 4 5 6 7 8 9 10; do sleep 2; air chan Birch 0 good evening; done) >/dev/null 2>&1 &",
        "ends": "hilltop.*good evening"},
    "sudo meshpost setup --unattended --upstream hub=https://hub.example.org --token-file hub=/root/hub.token": {
        "before": "cp /etc/meshpost-hub/tokens/hilltop /root/hub.token", "shows": "hub answers and accepts this gateway"},
    "sudo meshpost-hub tokens add hilltop --another": {"shows": "^[0-9a-f]{48}"},
    # The gateway has the new one when the old one goes; afterwards only the new one is taken.
    "sudo meshpost-hub tokens remove hilltop --keep-newest": {
        "before": """
cp /etc/meshpost-hub/tokens/hilltop /root/both; tail -n 1 /root/both >/root/hub.token
says() { curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $($1 -n 1 /root/both)" https://hub.example.org/v1/gateways/hilltop; }
until_true 'test $(says tail) = 200'
sudo meshpost setup --unattended --upstream hub=https://hub.example.org --token-file hub=/root/hub.token""",
        "shows": "removed 1 token of hilltop",
        "after": r"""
says() { curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $($1 -n 1 /root/both)" https://hub.example.org/v1/gateways/hilltop; }
until_true 'test "$(says head) $(says tail)" = "401 200"'; meshpost upstream test hub"""},
    "sudo meshpost-hub tokens remove ridge": {"shows": "removed 1 token of ridge"},
    "sudo apt install postgresql": {"typed": "systemctl start postgresql", "because": INSTALLED},
    # All that the file has comes again.
    "sudo -u postgres psql -c 'SELECT gateway, count(*) FROM events GROUP BY gateway' meshpost-hub": {
        "before": "until_true 'test $(in_postgres) -ge $(in_file)'; is_at_hub evening", "shows": r"hilltop +\| +[1-9]"},
    "sudo cat /etc/meshpost-hub/credentials/database.password": {
        "before": "echo a-password-for-the-database >/etc/meshpost-hub/credentials/database.password", "shows": "a-password-for-the-database"},
    "sudo -u postgres createuser --pwprompt meshpost": {
        "answers": [("password", "a-password-for-the-database\n"), ("again", "a-password-for-the-database\n")]},
    # Messages from after the backup arrive again, too.
    "sudo -u meshpost-hub meshpost-hub backup /var/lib/meshpost-hub/backup": {
        "before": "until_true 'is_at_hub evening'; on /var/lib/meshpost-hub/hub.db", "shows": "verified",
        "after": "heard morning chan Birch 0 good morning; until_true 'is_at_hub morning'; expected=morning"},
    'sqlite3 FILE ".backup COPY"': {"named": "other tools, by their names"},
    "sudo -u meshpost-hub cp /var/lib/meshpost-hub/backup /var/lib/meshpost-hub/hub.db": {"after": "test $(in_file) -ge 1"},
    # One copy of each, under the name that the page has for both.
    "sudo -u postgres dropdb meshpost-hub": {
        "before": """
on postgresql:///meshpost-hub; rm /var/lib/meshpost-hub/backup
sudo -u meshpost-hub meshpost-hub backup /var/lib/meshpost-hub/backup
heard noon chan Birch 0 good noon; until_true 'is_at_hub noon'; systemctl stop meshpost-hub"""},
    "sudo -u meshpost-hub pg_restore --no-owner --dbname meshpost-hub /var/lib/meshpost-hub/backup": {"after": "test $(in_postgres) -ge 1; expected=noon"},
    "sudo systemctl start meshpost-hub": {"after": "until_true 'is_at_hub evening && is_at_hub $expected'"},
    "sudo apt install ./meshpost-hub_*.deb": {"typed": "systemctl restart meshpost-hub", "because": INSTALLED},
    "ss -ltn": {"shows": r"127\.0\.0\.1:8787"},
    "sudo journalctl -u meshpost-hub -n 50": {"elsewhere": MACHINE},
    "sudo journalctl -u meshpost-hub": {"elsewhere": MACHINE},
    "sudo tail /var/log/nginx/access.log": {"shows": "/v1/gateways/hilltop"},
    "sudo certbot delete --cert-name hub.example.org": {"answers": [(r"\(Y\)es", "y\n")]},
    "sudo apt purge meshpost-hub": {"elsewhere": MACHINE},
}
for folder in ("bluez-bench", "machine"):
    DOCUMENTS[f"hardware/{folder}/README.md"] = {
        line: {"elsewhere": "it boots an emulated machine for many minutes: `make test` does, by BluetoothTests and MachineTests"}
        for line in {
            "bluez-bench": ("./setup", "./run --timeout 120 --backend 127.0.0.1:5500 -- COMMAND", "./run --timeout 300 --rw /tmp/ble --backend 127.0.0.1:5500 -- \\"),
            "machine": ("./setup", "./exercise.py", "./exercise.py --cuts 20 cuts"),
        }[folder]
    }
LONG = ("docs/installation.md", "docs/README.md", "docs/sending.md")
