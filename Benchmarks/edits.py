#!/usr/bin/env python3
"""How long `make quick` takes after a change of one line: in MeshCore, Relay, the Hub and a page. Prints a table.

The checkout must have no changes. Each line is taken out again; the build before the first one does not count.
"""
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A file, and the line before the new one.
EDITS = {
    "MeshCore": ("Sources/MeshCore/RadioSession/CommandQueue.swift", "  mutating func removeAll() -> [Entry] {"),
    "Relay": ("Sources/Gateway/Relay/Shipping/Pacer.swift", "  mutating func reset() {"),
    "Hub": ("Sources/Hub/Hub/Ingest/Coalescer.swift", "  private func run() async {"),
    "a page": ("Sources/Pages/views/chat.js", None),
}

if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout:
    sys.exit("edits: the checkout has changes, which make quick would try, too")
subprocess.run(["./Tests/build"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
print("| a line in | `make quick` | it says |\n|---|---|---|", flush=True)
for place, (name, before) in EDITS.items():
    file = ROOT / name
    text = file.read_text()
    edited = text.replace(f"{before}\n", f"{before}\n    _ = 0\n", 1) if before else text + "\n"
    if edited == text:
        sys.exit(f"edits: {name} has no line {before!r} any more")
    try:
        file.write_text(edited)
        began = time.monotonic()
        said = subprocess.run(["make", "quick"], cwd=ROOT, capture_output=True, text=True).stdout
        seconds = time.monotonic() - began
    finally:
        file.write_text(text)
    verdict = (re.findall(r"^quick: ((?:yes|no|it builds|nothing).*)", said, re.M) or ["it has failed"])[-1]
    print(f"| {place} | {seconds:.0f} s | {verdict} |", flush=True)
