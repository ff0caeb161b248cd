# SPDX-License-Identifier: MIT
"""A machine for one document: files, users, services, servers and a mesh. Other programs do not see them, and they end with its last process.

It is made within namespaces of mounts, network and processes, as root: overlays lie over the machine's own folders, so that the packages' files,
the users and the addresses that the documents name can be where the documents say.
"""
import json
import os
import pathlib
import signal
import socket
import shutil
import subprocess
import sys
import threading
import time

from reading import CHECKOUT

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.path.realpath(sys.executable)
OVERLAID = ("/etc", "/usr", "/opt", "/root", "/home", "/var", "/tmp")
USERS = {"meshpost": 47001, "pi": 47002, "meshpost-hub": 47003}
# Servers that documents name, all of them here.
NAMES = "hilltop hub.example.org db.example.org broker.example.org hooks.example.org mqtt.analyzer.example acme.example.org"
PLACE = pathlib.Path("/opt/meshpost")  # where the checkout is
NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
TOKEN = "a-token-for-the-documents"


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, **options)


def write(location, text, mode=0o644, owner=0):
    path = pathlib.Path(location)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


def lay():
    """The folders of the machine, with whatever is written from now on in memory."""
    stage = next(place for place in ("/mnt", "/media", "/srv") if os.path.isdir(place) and not str(CHECKOUT).startswith(place))
    run("mount", "-t", "tmpfs", "-o", "mode=755", "stage", stage)
    number = 0

    def overlay(lower, place):
        nonlocal number
        number += 1
        up, work = f"{stage}/{number}.up", f"{stage}/{number}.work"
        mode = os.stat(lower)
        os.mkdir(up)
        os.chmod(up, mode.st_mode & 0o7777)
        os.mkdir(work)
        run("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={up},workdir={work}", "overlay", place)

    # Held on to before anything lies over it.
    os.mkdir(f"{stage}/checkout")
    run("mount", "--bind", CHECKOUT, f"{stage}/checkout")
    for folder in OVERLAID:
        if os.path.isdir(folder) and not os.path.islink(folder):
            overlay(folder, folder)
    PLACE.mkdir(parents=True, exist_ok=True)
    overlay(f"{stage}/checkout", PLACE)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run")
    devices(stage)
    run("ip", "link", "set", "lo", "up")


def devices(stage):
    """A /dev without any device of the machine's, so that the radio is the only one."""
    run("mount", "-t", "tmpfs", "-o", "mode=755", "dev", "/dev")
    for name, major, minor in (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)):
        os.mknod(f"/dev/{name}", 0o20666, os.makedev(major, minor))
        os.chmod(f"/dev/{name}", 0o666)
    os.mkdir("/dev/pts")
    os.mkdir("/dev/shm", 0o1777)
    run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=0620", "devpts", "/dev/pts")
    os.symlink("pts/ptmx", "/dev/ptmx")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"/dev/{name}")


def install(programs, python):
    """The packages, by their own lists and scripts, with programs as they were built."""
    for name in ("meshpost", "meshpostd", "meshpost-hub", "meshpost-radio"):
        source, place = programs / name, pathlib.Path("/usr/bin") / name
        if source.read_bytes()[:4] == b"\x7fELF":
            place.touch()
            run("mount", "--bind", source, place)
        else:
            write(place, f'#!/bin/sh\nexec {source} "$@"\n', 0o755)
    build = PLACE / ".build/debug"
    build.mkdir(parents=True, exist_ok=True)
    for name in ("meshpost", "meshpostd", "meshpost-hub", "meshpost-radio"):
        if not (build / name).exists():
            (build / name).symlink_to(f"/usr/bin/{name}")
    for user, number in USERS.items():
        for file, line in (
            ("passwd", f"{user}:x:{number}:{number}::/home/{user}:/bin/bash"), ("group", f"{user}:x:{number}:{'pi' if user == 'meshpost' else ''}"),
            ("shadow", f"{user}:*:20000:0:99999:7:::")):
            with open(f"/etc/{file}", "a") as table:
                table.write(line + "\n")
    groups = pathlib.Path("/etc/group").read_text().split("\n")
    groups = [line + (",meshpost" if line[-1] != ":" else "meshpost") if line.startswith("dialout:") else line for line in groups]
    pathlib.Path("/etc/group").write_text("\n".join(groups))
    for source, place in (("meshpostd.toml", "meshpost"), ("hub.toml", "meshpost-hub")):
        write(f"/usr/share/{place}/{source}", (CHECKOUT / "deploy" / source).read_text())
    for place in ("meshpost", "meshpost-hub"):
        shutil.copytree(CHECKOUT / "Sources/Pages", f"/usr/share/{place}/pages")
    examples = pathlib.Path("/usr/share/doc/meshpost/examples/hooks")
    for hook in (CHECKOUT / "deploy/hooks").iterdir():
        write(examples / hook.name, hook.read_text(), 0o755)
    for package in ("meshpost", "meshpost-hub"):
        run("sh", CHECKOUT / f"deploy/debian/{package}.postinst", "configure", stdout=subprocess.DEVNULL)
    # Any gateway's, once: each document has one. docs/hub.md makes its own.
    write("/etc/meshpost-hub/credentials/any.token", TOKEN + "\n", 0o600)
    with open("/etc/meshpost-hub/hub.toml", "a") as configuration:
        configuration.write('\n[[token]]\nfile = "any.token"\naccess = "write"\n')
    # systemd-tmpfiles makes the folder.
    os.makedirs("/etc/meshpost-hub/tokens")
    write("/etc/meshpost-hub/tokens/hilltop", TOKEN + "\n", 0o640)
    shutil.chown("/etc/meshpost-hub/tokens", group="meshpost-hub")
    shutil.chown("/etc/meshpost-hub/tokens/hilltop", group="meshpost-hub")
    write("/root/hub.token", TOKEN + "\n", 0o600)
    os.makedirs("/run/systemd/system")
    write("/usr/bin/systemctl", f'#!/bin/sh\nexec {PYTHON} {HERE}/run --systemctl "$@"\n', 0o755)
    if not os.path.exists("/usr/bin/sudo"):
        write("/usr/bin/sudo", '#!/bin/sh\nif [ "$1" = -u ]; then user=$2; shift 2; exec runuser -u "$user" -- "$@"; fi\nexec "$@"\n', 0o755)
    # Foreign programs, as `pip install` installs them.
    write("/usr/local/bin/meshcore-cli", f'#!/bin/sh\nexec {python} -m meshcore_cli.meshcore_cli "$@"\n', 0o755)


def names():
    hosts = pathlib.Path("/etc/hosts")
    hosts.unlink()
    hosts.write_text(f"127.0.0.1 localhost\n::1 localhost\n127.0.0.1 {NAMES}\n")


def authority():
    """An authority that this machine trusts, and a certificate of it for all servers."""
    os.makedirs("/etc/stage", exist_ok=True)
    openssl = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-x509", "-days", "30"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/etc/stage"}
    run(*openssl, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Stage", **quiet)
    alternatives = ",".join(f"DNS:{name}" for name in NAMES.split())
    run(
        *openssl, "-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=servers", "-addext",
        f"subjectAltName={alternatives}", "-addext", "basicConstraints=critical,CA:FALSE", **quiet)
    run("chmod", "644", "/etc/stage/key.pem")
    trust(pathlib.Path("/etc/stage/ca.pem"))


def trust(certificate):
    with open("/etc/ssl/certs/ca-certificates.crt", "a") as trusted:
        trusted.write(certificate.read_text())
    shown = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", certificate], capture_output=True, text=True, check=True)
    os.symlink(certificate, f"/etc/ssl/certs/{shown.stdout.strip()}.0")


def start(*command, ready=None, log=None, environment=None):
    """A server of the world; with `ready`, waits until the server prints that."""
    log = log or f"/var/log/{pathlib.Path(str(command[0])).name}.log"
    with open(log, "ab") as output:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment)
    while ready and ready not in pathlib.Path(log).read_text(errors="replace"):
        if process.poll() is not None:
            raise SystemExit(f"{command[0]}: {pathlib.Path(log).read_text(errors='replace')}")
        time.sleep(0.02)
    return process


def listens(port):
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)


def secure_shell():
    """sshd, which lets root in here in as pi there."""
    for folder in ("/root/.ssh", "/home/pi/.ssh", "/run/sshd"):
        os.makedirs(folder, mode=0o755 if folder == "/run/sshd" else 0o700, exist_ok=True)
    for file in ("config", "known_hosts", "id_ed25519", "id_ed25519.pub"):
        pathlib.Path(f"/root/.ssh/{file}").unlink(missing_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/.ssh/id_ed25519")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/stage/host")
    host = " ".join(pathlib.Path("/etc/stage/host.pub").read_text().split()[:2])
    write("/root/.ssh/known_hosts", f"hilltop,[hilltop]:2222 {host}\n", 0o600)
    write("/home/pi/.ssh/authorized_keys", pathlib.Path("/root/.ssh/id_ed25519.pub").read_text(), 0o600, USERS["pi"])
    for folder in ("/home/pi", "/home/pi/.ssh"):
        os.chown(folder, USERS["pi"], USERS["pi"])
    write(
        "/etc/stage/sshd", "Port 22\nPort 2222\nListenAddress 127.0.0.1\nHostKey /etc/stage/host\nPidFile none\nUsePAM no\nPasswordAuthentication no\n")
    start("/usr/sbin/sshd", "-D", "-e", "-f", "/etc/stage/sshd", ready="listening on 127.0.0.1 port 22.")


def servers():
    """The servers of the examples behind one TLS port: a hub, a webhook's receiver, a broker; the broker on its own port, too."""
    write("/etc/stage/passwords", "")
    run("chmod", "0700", "/etc/stage/passwords")
    run("mosquitto_passwd", "-b", "/etc/stage/passwords", "hilltop", "secret", stderr=subprocess.DEVNULL)
    tls = "cafile /etc/stage/ca.pem\ncertfile /etc/stage/cert.pem\nkeyfile /etc/stage/key.pem\n"
    write(
        "/etc/stage/mosquitto.conf",
        "per_listener_settings true\nuser root\n"
        f"listener 8883 127.0.0.1\n{tls}allow_anonymous false\npassword_file /etc/stage/passwords\n"
        "listener 1883 127.0.0.1\nallow_anonymous true\n"
        "listener 9001 127.0.0.1\nprotocol websockets\nallow_anonymous true\n")
    start("/usr/sbin/mosquitto", "-c", "/etc/stage/mosquitto.conf")
    front = start(PYTHON, HERE / "front.py", "/etc/stage/cert.pem", "/etc/stage/key.pem", log="/var/log/front.log")
    write("/run/front.pid", f"{front.pid}\n")
    for port in (443, 8883):
        listens(port)


def mesh(python):
    """The radio of this machine on a USB port, another one to exchange it for, people, a repeater and a room."""
    os.makedirs("/run/mesh")
    start(
        python, CHECKOUT / "hardware/mesh.py", "--nodes", 3, "--names", "r0,Birch,Larch", "--dir", "/run/mesh", "--tty", "r0,Larch", "--firmware-times", "--packets",
        "--server", "Ridge=repeater", "--server", "Lobby=room", ready='"ready"', log="/run/mesh/log")
    for name in ("r0", "Larch"):
        device = os.readlink(f"/run/mesh/{name}.tty")
        run("chown", "root:dialout", device)
        run("chmod", "660", device)
    os.symlink(os.readlink("/run/mesh/r0.tty"), "/dev/ttyACM0")


def make(programs, python):
    lay()
    names()
    install(programs, python)
    authority()
    secure_shell()
    servers()
    mesh(python)
    systemctl(["start", "meshpost-hub"])
    systemctl(["start", "meshpost"])


# The parts of systemd that a document needs.


def unit(name):
    """`meshpost` is also called `meshpostd` (Alias=)."""
    name = {"meshpostd": "meshpost"}.get(name.removesuffix(".service"), name.removesuffix(".service"))
    lines = [line.split("=", 1) for line in (CHECKOUT / f"deploy/systemd/{name}.service").read_text().split("\n") if "=" in line and line[0] != "#"]
    return name, {key: value for key, value in lines}


def own(folder, user, mode):
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, mode)
    for place, folders, files in os.walk(folder):
        for entry in [place] + [os.path.join(place, file) for file in files]:
            os.chown(entry, user, user)


def is_running(name):
    try:
        process = int(pathlib.Path(f"/run/systemd/{name}.pid").read_text())
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else process


def begin(name, words):
    user = USERS[words["User"]]
    if folder := words.get("StateDirectory"):
        # systemd gives a folder with its content to the unit's user if another user owns the folder.
        state = f"/var/lib/{folder}"
        if not os.path.exists(state) or os.stat(state).st_uid != user:
            own(state, user, 0o750)
    if folder := words.get("RuntimeDirectory"):
        own(f"/run/{folder}", user, int(words["RuntimeDirectoryMode"], 8))
    credentials = f"/run/credentials/{name}.service"
    run("rm", "-rf", credentials)
    os.makedirs(credentials)
    _, source = words["LoadCredential"].split(":")
    prefix = words["LoadCredential"].split(":")[0]
    for file in os.listdir(source):
        write(f"{credentials}/{prefix}_{file}", pathlib.Path(source, file).read_text(), 0o400, user)
    run("chown", "-R", f"{user}:{user}", credentials)
    notify = f"/run/systemd/{name}.notify"
    pathlib.Path(notify).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, open(f"/var/log/{name}.log", "ab") as log:
        listener.bind(notify)
        os.chmod(notify, 0o666)
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "NOTIFY_SOCKET": notify, "CREDENTIALS_DIRECTORY": credentials}
        process = subprocess.Popen(
            command + words["ExecStart"].split(), env=environment, cwd="/", umask=0o077, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True)
        pathlib.Path(f"/run/systemd/{name}.pid").write_text(str(process.pid))
        listener.settimeout(0.1)
        while True:
            try:
                if b"READY=1" in listener.recv(4096):
                    return 0
            except TimeoutError:
                if process.poll() is not None:
                    print(f"Job for {name}.service failed: {pathlib.Path(f'/var/log/{name}.log').read_text()[-1000:]}")
                    return 1


def end(name, words):
    if process := is_running(name):
        os.kill(process, signal.SIGTERM)
        while is_running(name):
            time.sleep(0.02)
    if folder := words.get("RuntimeDirectory"):
        run("rm", "-rf", f"/run/{folder}")


def nginx(verb):
    """Debian's, with the sites of its folder; it takes the TLS port over from the stage's front."""
    running = os.path.exists("/run/nginx.pid")
    if verb in ("stop", "restart") and running:
        process = int(pathlib.Path("/run/nginx.pid").read_text())
        run("nginx", "-s", "quit")
        while os.path.exists(f"/proc/{process}/fd/0"):
            time.sleep(0.02)
    if verb == "restart" or verb == "start" and not running:
        front = pathlib.Path("/run/front.pid")
        if front.exists():
            os.kill(int(front.read_text()), signal.SIGKILL)
            front.unlink()
        run("nginx")
    if verb == "reload":
        run("nginx", "-s", "reload")


def postgresql(verb):
    """Debian's, with a cluster as the package makes it, and the stage's certificate."""
    version = sorted(os.listdir("/usr/lib/postgresql"), key=float)[-1]
    if not os.path.exists("/run/postgresql"):
        for folder in ("/etc/postgresql", "/var/lib/postgresql"):
            for place in pathlib.Path(folder).glob("*"):
                run("rm", "-rf", place)
        run("install", "-d", "-o", "postgres", "-g", "postgres", "-m", "2775", "/run/postgresql")
        run("install", "-o", "postgres", "-m", "600", "/etc/stage/key.pem", "/etc/stage/postgres.pem")
        run("pg_createcluster", version, "main", "--", "--no-sync", stdout=subprocess.DEVNULL)
        for key, value in {"ssl_cert_file": "/etc/stage/cert.pem", "ssl_key_file": "/etc/stage/postgres.pem", "ssl": "on"}.items():
            run("pg_conftool", version, "main", "set", key, value)
    run("pg_ctlcluster", "--skip-systemctl-redirect", version, "main", verb)


def pebble(_):
    """An ACME authority, which the machine trusts, in place of the public one of certbot."""
    write("/etc/stage/pebble.json", json.dumps({"pebble": {
        "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000", "certificate": "/etc/stage/cert.pem",
        "privateKey": "/etc/stage/key.pem", "httpPort": 80, "tlsPort": 443}}))
    environment = os.environ | {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "100"}
    start("pebble", "-config", "/etc/stage/pebble.json", environment=environment)
    listens(14000)
    listens(15000)
    root = run("curl", "-sSf", "https://acme.example.org:15000/roots/0", stdout=subprocess.PIPE, text=True).stdout
    trust(write("/etc/stage/acme.pem", root))
    with open("/etc/letsencrypt/cli.ini", "a") as settings:
        settings.write("\nserver = https://acme.example.org:14000/dir\n")


# Units of others that documents name, and servers of the stage that they need.
OTHERS = {"nginx": nginx, "postgresql": postgresql, "pebble": pebble}


def systemctl(arguments):
    """start, stop, restart, reload, enable, status and is-active of the units that this repository has, and the first four of others'."""
    verb, *names = [word for word in arguments if not word.startswith("-")]
    for given in names:
        if given in OTHERS:
            OTHERS[given](verb)
            continue
        name, words = unit(given)
        if verb in ("stop", "restart"):
            end(name, words)
        if verb in ("start", "restart") and not is_running(name):
            if code := begin(name, words):
                return code
        if verb == "reload":
            os.kill(is_running(name) or 0, signal.SIGHUP)
        if verb == "status":
            print(f"● {name}.service - {words['Description']}\n     Main PID: {is_running(name)}")
            return 0 if is_running(name) else 3
        if verb not in ("start", "stop", "restart", "reload", "enable", "status"):
            print(f"systemctl {verb}: not here")
            return 1
    return 0
