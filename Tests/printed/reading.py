# SPDX-License-Identifier: MIT
"""The printed examples of the documents: commands, configurations, scripts, files, and text that is only shown."""
import pathlib
import re

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]

# Programs at the beginning of a command; within a sentence other text is no command.
PROGRAMS = {
    "meshpost", "meshpostd", "meshpost-hub", "meshpost-radio", "meshcore-cli", "make", "apt", "systemctl", "journalctl",
    "systemd-analyze", "udevadm", "adduser", "curl", "ssh", "man", "source", "cp", "pip", "pip3", "git", "mosquitto_sub", "mosquitto_pub",
    "hardware/acceptance", "hardware/quickstart", "hardware/keeper", "docker", "sqlite3", "psql", "echo", "timedatectl",
}
# The examples of all man pages, which help has, too, are one document.
MANUAL = "docs/man"
# In a block of its own every word that is none of these, and no text, is a program.
DRAWN = re.compile(r"[▶─│▲╲╱]")
SHOWN = re.compile(r"[{→←…]|^\d{3}\s|^(warning|notice|info): |^[A-Z][A-Za-z-]+: ")


def documents():
    """Every document that a newcomer reads, by its location in the checkout; without the documents that the programs generate."""
    found = ["README.md"]
    for folder, pattern in (("docs", "*.md"), ("deploy", "*.md"), ("deploy", "*.toml"), ("udev", "*.md"), ("hardware", "**/*.md")):
        found += [str(path.relative_to(CHECKOUT)) for path in sorted((CHECKOUT / folder).glob(pattern))]
    return [name for name in found if name not in ("docs/json.md", "docs/requests.md")] + [MANUAL]


class Printed:
    """One thing that is printed: `kind` is command, toml, script, file or shown."""

    def __init__(self, kind, text, line, is_in_sentence=False):
        self.kind, self.text, self.line, self.is_in_sentence = kind, text, line, is_in_sentence

    @property
    def key(self):
        """The text as the tables name it: without the remark behind it."""
        return re.sub(r"\s+#( .*)?$", "", self.text).strip()


def program(text):
    """The program that a command line calls, without rights and variables before it."""
    words = text.split()
    while words and (words[0] == "sudo" or re.match(r"[A-Z_]+=", words[0])):
        words.pop(0)
    return words[0] if words else ""


def _block(lines, first):
    """The parts of an indented block; `first` is the number of its first line."""
    if any(line.startswith("$ ") for line in lines):
        for number, line in enumerate(lines):
            if line.startswith("$ "):
                yield Printed("command", line[2:], first + number)
        return
    text = "\n".join(lines)
    if text.startswith("#!"):
        yield Printed("script", text, first)
    elif re.match(r"# /\S+$", lines[0]):
        yield Printed("file", text, first)
    elif re.match(r"\[\[?[a-z]+\]\]?$", lines[0]) or re.match(r"[a-z_]+ = [\"\[\dtf]", lines[0]):
        yield Printed("toml", text, first)
    elif DRAWN.search(text) or (SHOWN.search(text) and program(lines[0]) not in PROGRAMS):
        yield Printed("shown", text, first)
    else:
        number = 0
        while number < len(lines):
            begin = number
            while lines[number].endswith("\\"):
                number += 1
            number += 1
            yield Printed("command", "\n".join(lines[begin:number]), first + begin)


def _sentence(line, number):
    for span in re.findall(r"`([^`]+)`", line):
        text = span.replace("\\|", "|")
        if program(text) in PROGRAMS and (" " in text or "/" in text):
            yield Printed("command", text, number, is_in_sentence=True)


def _manual():
    """The lines of the sections EXAMPLES, as man shows them; each has its meaning above it."""
    for page in sorted((CHECKOUT / MANUAL).glob("meshpost-*.1")):
        is_inside = False
        for number, line in enumerate(page.read_text().split("\n"), 1):
            if line.startswith(".SH "):
                is_inside = line == ".SH EXAMPLES"
            elif is_inside and line and not line.startswith((".", "#")):
                yield Printed("command", line.replace("\\(aq", "'").replace("\\-", "-").replace("\\e", "\\"), number)


def read(name):
    """The examples of a document, in order. A command that a sentence repeats is the same command."""
    if name == MANUAL:
        return list(_manual())
    lines = (CHECKOUT / name).read_text().split("\n")
    found, block, known = [], [], set()
    for number, line in enumerate(lines + [""], 1):
        if name.endswith(".md") and line.startswith("    "):
            block.append(line[4:])
            continue
        if block and not line.strip() and number < len(lines) and lines[number].startswith("    ") and block[0].startswith("#!"):
            block.append("")  # a script may have empty lines
            continue
        if block:
            found += _block(block, number - len(block))
            block = []
        found += _sentence(line, number)
    kept = []
    for printed in found:
        if printed.is_in_sentence and printed.key in known:
            continue
        known.add(printed.key)
        kept.append(printed)
    return kept
