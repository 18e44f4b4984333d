"""A model of the log as plain lists: what a log must still hold after a crash or a failure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tenure.errors import Overloaded, TenureError
from tenure.log import Entry, FileLog, Frame
from tenure.log.features import FEATURES, Feature
from tenure.testing.simdisk import SimDisk

SEGMENT_BYTES = 2048


def open_log(
    disk: SimDisk, *, segment_bytes: int = SEGMENT_BYTES, known: Sequence[Feature] = FEATURES
) -> tuple[FileLog, list[Frame]]:
    log = FileLog.open(disk, segment_bytes=segment_bytes, log_id=b"0123456789abcdef", known=known)
    return log, list(log.replay())


class Model:
    """Every frame ever appended to one log, in order, and how much of it was promised to last."""

    def __init__(self) -> None:
        #: (batch, frame) in the order of the log.
        self.history: list[tuple[int, Frame]] = []
        self.synced_batch = 0
        self.dropped = 0
        self.epoch = 0

    def append(self, log: FileLog, entries: list[Entry], *, urgent: bool = False) -> list[int]:
        locations = log.append(entries, urgent=urgent)
        for location, (kind, topic, body) in zip(locations, entries, strict=True):
            self.history.append((log.pending_batch, (kind, topic, location, body)))
        return locations

    def note(self, log: FileLog) -> None:
        """Take down what the log has promised so far."""
        self.synced_batch = max(self.synced_batch, log.synced_batch)

    def check(self, log: FileLog, frames: list[Frame]) -> None:
        """Hold a recovered log against what must, may and must not be in it; go on from what it holds.

        Every synced batch is there, what follows is a whole number of later batches in order, nothing else is there.
        """
        assert log.epoch > self.epoch, "an epoch was used twice"
        self.epoch = log.epoch
        start = 0
        if frames:
            places = [place for place, (_, frame) in enumerate(self.history) if frame == frames[0]]
            assert places, f"unexpected frame {frames[0][:3]}"
            start = places[0]
        else:
            start = len([1 for batch, frame in self.history if frame[2] >> 32 <= self.dropped])
        assert all(frame[2] >> 32 <= self.dropped for _, frame in self.history[:start]), "lost at the front"
        kept = self.history[start : start + len(frames)]
        assert [frame for _, frame in kept] == frames, "another content, or another order"
        rest = self.history[start + len(frames) :]
        if rest:
            assert rest[0][0] > self.synced_batch, f"acknowledged batch {rest[0][0]} of {self.synced_batch} is lost"
            assert not kept or rest[0][0] > kept[-1][0], "half a batch survived"
        self.history = kept
        self.synced_batch = log.synced_batch


def work(model: Model, log: FileLog, random: Random, *, steps: int, drops: bool = True) -> None:
    """Do a few random things to a log, as its owner would; the model learns what was promised."""
    for _ in range(steps):
        choice = random.random()
        try:
            if choice < 0.45:
                count = random.choice((1, 1, 2, 3))
                size = 3000 if random.random() < 0.01 else random.choice((0, 5, 40, 200))
                entries = [
                    (random.randint(16, 255), random.randint(0, 9), random.randbytes(size)) for _ in range(count)
                ]
                model.append(log, entries, urgent=random.random() < 0.2)
            elif choice < 0.70:
                log.write()
            elif choice < 0.85:
                log.sync()
            elif choice < 0.92:
                log.write()
                sync = log.begin_sync()
                model.append(log, [(20, 1, random.randbytes(random.choice((10, 900))))])
                log.write()
                sync.run()
                log.end_sync(sync)
            elif choice < 0.96:
                log.seal()
            elif drops and len(log.segments()) > 2:
                segment = log.segments()[0].number
                # From the call on, its frames may be gone: the declaration may have become durable.
                model.dropped = segment
                log.drop(segment)
        except Overloaded:
            pass
        finally:
            model.note(log)


def outcome_of(error: BaseException) -> str:
    return error.code if isinstance(error, TenureError) else type(error).__name__
