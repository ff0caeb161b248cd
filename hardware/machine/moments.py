"""What a disk holds when the power goes at any moment of a recording: everything that was flushed, and a random choice of the rest, torn.

Each moment is put together as an image of its own, its file system is mended as at a start (the journal is replayed), and the database in it is
looked at. Nothing is mounted, no rights are needed.
"""
import os
import pathlib
import random
import sqlite3
import subprocess

DATABASE = "/var/lib/meshpost/gateway.db"


class Moments:
    """`image` is the disk as it was when the recording of a `Disk` began; it is used up. `recording`: writes and flushes, in order."""

    def __init__(self, image, recording, seed):
        self.image, self.recording = pathlib.Path(image), recording
        self.chance = random.Random(seed)
        self.settled = 0  # so many of the recording are in the image
        self.file = os.open(self.image, os.O_RDWR)
        self.at_stake = 0

    def chosen(self, count):
        return sorted(self.chance.sample(range(1, len(self.recording) + 1), min(count, len(self.recording))))

    def at(self, moment):
        """The database after the first `moment` steps: (messages, last event). Later moments only, each time. Raises when it is not sound."""
        flushed = max((place + 1 for place in range(self.settled, moment) if self.recording[place][1] is None), default=self.settled)
        self._write(self.file, self.recording[self.settled:flushed])
        self.settled = flushed
        pending = [step for step in self.recording[flushed:moment] if step[1] is not None]
        self.at_stake += len(pending)
        kept = [step for step in pending if self.chance.random() < 0.5]
        if kept and len(kept[-1][2]) > 512:
            time, offset, data = kept[-1]
            kept[-1] = (time, offset, data[: 512 * self.chance.randrange(1, len(data) // 512 + 1)])
        copy = self.image.with_suffix(".moment")
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", self.image, copy], check=True)
        try:
            file = os.open(copy, os.O_RDWR)
            self._write(file, kept)
            os.close(file)
            return self._look(copy)
        finally:
            copy.unlink()

    @staticmethod
    def _write(file, steps):
        for _, offset, data in steps:
            if offset is not None:
                os.pwrite(file, data, offset)

    def _look(self, copy):
        mended = subprocess.run(["e2fsck", "-p", copy], capture_output=True, text=True)
        assert mended.returncode <= 1, f"the file system does not mend itself: {mended.stdout}{mended.stderr}"
        place = self.image.with_suffix(".db")
        for suffix in ("", "-wal", "-shm"):
            there = pathlib.Path(f"{place}{suffix}")
            there.unlink(missing_ok=True)
            if suffix != "-shm":
                subprocess.run(["debugfs", "-R", f"dump {DATABASE}{suffix} {there}", copy], capture_output=True, check=True)
        database = sqlite3.connect(place)
        try:
            verdict = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
            assert verdict == "ok", verdict
            return (database.execute("SELECT count(*) FROM messages").fetchone()[0],
                    # The row of a received message is its event.
                    database.execute("SELECT coalesce(max(seq), 0) FROM (SELECT seq FROM journal UNION ALL SELECT seq FROM messages)").fetchone()[0])
        finally:
            database.close()
