#!/usr/bin/env python3
"""calls.py FILE PROGRAM…: runs PROGRAM (x86-64, with its symbols) and writes to FILE which of its functions were called, in the order of first calls.

A breakpoint stands at each function until it is met. SIGUSR1 sets them again: what is called after that is written before what was called only earlier.
SIGTERM ends PROGRAM. Called by memory.py --order.
"""
import ctypes
import os
import pathlib
import signal
import subprocess
import sys

PTRACE_TRACEME, PTRACE_CONT, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_SETOPTIONS = 0, 7, 12, 13, 0x4200
TRACE_FORK_VFORK_CLONE, EXIT_KILL, RIP = 0x2 | 0x4 | 0x8, 0x100000, 16
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
registers = (ctypes.c_ulonglong * 27)()


def functions(program):
    """Address and name of each function: of several names of one address the first."""
    found = {}
    for line in subprocess.run(["readelf", "-sW", program], capture_output=True, text=True, check=True).stdout.splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[3] == "FUNC" and fields[6] != "UND" and fields[2] != "0":
            address = int(fields[1], 16)
            found[address] = min(found.get(address, fields[7]), fields[7])
    return found


output, program = pathlib.Path(sys.argv[1]), sys.argv[2]
names = functions(program)
child = os.fork()
if child == 0:
    libc.ptrace(PTRACE_TRACEME, 0, None, None)
    os.execv(program, sys.argv[2:])
os.waitpid(child, 0)
libc.ptrace(PTRACE_SETOPTIONS, child, None, TRACE_FORK_VFORK_CLONE | EXIT_KILL)
maps = [line.split() for line in pathlib.Path(f"/proc/{child}/maps").read_text().splitlines() if line.endswith(os.path.realpath(program))]
base = int(maps[0][0].split("-")[0], 16)
memory = os.open(f"/proc/{child}/mem", os.O_RDWR)
low, high = min(names), max(names) + 1
code = os.pread(memory, high - low, base + low)
phases, armed = [], set()


def arm(*_):
    phases.insert(0, [])
    armed.update(names)
    stopped = bytearray(code)
    for address in names:
        stopped[address - low] = 0xCC
    os.pwrite(memory, stopped, base + low)


arm()
signal.signal(signal.SIGUSR1, arm)
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
libc.ptrace(PTRACE_CONT, child, None, None)
while True:
    process, state = os.waitpid(-1, 0x40000000)  # __WALL: threads too
    if not os.WIFSTOPPED(state):
        if process == child:
            break
        continue
    passed = os.WSTOPSIG(state)
    if passed == signal.SIGTRAP:
        passed = 0
        libc.ptrace(PTRACE_GETREGS, process, None, ctypes.byref(registers))
        address = registers[RIP] - 1 - base
        if state >> 16 == 0 and address in names:
            if address in armed:
                armed.discard(address)
                phases[0].append(names[address])
                os.pwrite(memory, code[address - low:address - low + 1], base + address)
            registers[RIP] -= 1
            libc.ptrace(PTRACE_SETREGS, process, None, ctypes.byref(registers))
    elif passed == signal.SIGSTOP and process != child:
        passed = 0
    libc.ptrace(PTRACE_CONT, process, None, passed)
output.write_text("".join(f"{name}\n" for name in dict.fromkeys(name for phase in phases for name in phase)))
