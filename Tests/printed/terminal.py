# SPDX-License-Identifier: MIT
"""A newcomer's terminal: an interactive bash on a pseudo-terminal, typed into line by line."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

# The time limit of a command that neither ends nor shows its expected output; only a hang takes so long.
PATIENCE = float(os.environ.get("MESHPOST_TEST_PATIENCE", 60)) * 4
MARK = b"\x1e"


class Stuck(Exception):
    pass


class Terminal:
    def __init__(self, folder):
        environment = {
            "HOME": "/root", "USER": "root", "TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": "", "PS2": "",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PROMPT_COMMAND": r'printf "\036%s %s\036" "$typed" $?',
            "typed": "0",
        }
        process, self.port = pty.fork()
        if process == 0:
            # Where a shell has started the tests in its background, Ctrl-C is ignored by all below it; a terminal begins afresh.
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.chdir(folder)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)
        settings = termios.tcgetattr(self.port)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self.port, termios.TCSANOW, settings)
        fcntl.ioctl(self.port, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.seen, self.number = b"", 0
        self._code(time.monotonic() + PATIENCE)

    def _more(self, end):
        if not select.select([self.port], [], [], max(0, end - time.monotonic()))[0]:
            raise Stuck
        try:
            self.seen += os.read(self.port, 65536)
        except OSError:
            raise Stuck from None

    def _code(self, end):
        mark = MARK + str(self.number).encode() + rb" (\d+)" + MARK
        while not (match := re.search(mark, self.seen)):
            self._more(end)
        said, self.seen = self.seen[:match.start()], self.seen[match.end():]
        return int(match[1]), said

    def type(self, line, answers=(), ends=None, when=None):
        """The exit code and the output. `answers`: pairs of awaited output and typed text; `ends`: when this is shown
        Ctrl-C is pressed (or, as a pair, something else is typed); `when`: a shell's condition for that, for commands without output."""
        end, shown = time.monotonic() + PATIENCE, b""
        # Each line has a number: a Ctrl-C that comes when its program has just ended makes a prompt of its own.
        self.number += 1
        os.write(self.port, f"typed={self.number}\n".encode())
        self._code(end)
        os.write(self.port, line.encode() + b"\n")
        steps = list(answers)
        if ends:
            steps.append(ends if isinstance(ends, tuple) else (ends, "\x03"))
        try:
            while when and subprocess.run(["/bin/bash", "-c", when], capture_output=True).returncode:
                if time.monotonic() > end:
                    raise Stuck
                time.sleep(0.1)
            if when:
                os.write(self.port, b"\x03")
            for wanted, answer in steps:
                while not (match := re.search(wanted.encode(), self.seen)):
                    if MARK in self.seen:  # it has ended before
                        code, said = self._code(end)
                        return code, self._text(shown + said) + f"\n(it ended before it showed {wanted!r})"
                    self._more(end)
                shown, self.seen = shown + self.seen[:match.end()], self.seen[match.end():]
                os.write(self.port, answer.encode())
            code, said = self._code(end)
            return code, self._text(shown + said)
        except Stuck:
            text = self._text(shown + self.seen)
            self.seen = b""
            os.write(self.port, b"\x03")
            raise Stuck(text) from None

    @staticmethod
    def _text(shown):
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))
        return text.replace("\r", "").strip()
