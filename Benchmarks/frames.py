"""Frames a second through PyPI `meshcore`: its serial framing and its reader, on the frames of FILE.

    frames.py make TRACES FILE     writes the radio's frames of the recorded traces, framed, to FILE
    frames.py run FILE             prints a JSON object
"""
import asyncio
import glob
import json
import sys
import time


def make(traces, location):
    with open(location, "wb") as out:
        for name in sorted(glob.glob(f"{traces}/*/*.jsonl")):
            for line in open(name):
                row = json.loads(line)
                if row["dir"] == "rx" and not row.get("raw"):
                    frame = bytes.fromhex(row["hex"])
                    out.write(b">" + len(frame).to_bytes(2, "little") + frame)


async def run(location):
    import logging

    from meshcore.events import EventDispatcher
    from meshcore.reader import MessageReader
    from meshcore.serial_cx import SerialConnection

    logging.disable(logging.CRITICAL)
    stream = open(location, "rb").read()
    dispatcher = EventDispatcher()
    await dispatcher.start()
    reader = MessageReader(dispatcher)
    frames = []

    class Sink:
        async def handle_rx(self, data):
            frames.append(data)

    # Its framing makes a task of each frame; they are collected, then read one after another as its loop would.
    connection = SerialConnection("/dev/null", 115200)
    connection.set_reader(Sink())
    start = time.perf_counter()
    for position in range(0, len(stream), 4096):
        connection.handle_rx(stream[position : position + 4096])
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    failed = 0
    for frame in frames:
        try:
            await reader.handle_rx(bytearray(frame))
        except Exception:
            failed += 1
        while not dispatcher.queue.empty():
            await asyncio.sleep(0)
    seconds = time.perf_counter() - start
    print(json.dumps({"bench": "frames-meshcore", "frames": len(frames), "failed": failed, "per_second": int(len(frames) / seconds)}))
    await dispatcher.stop()


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
else:
    asyncio.run(run(sys.argv[2]))
