"""The recovery rule, by trial: many simulated crashes and bit flips, each from an explicit seed.

``make test`` runs 10,000 of each; ``-m full`` ten times as many. The figures are printed (``pytest -s``).
"""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import NamedTuple

import pytest

from tenure.errors import Corrupt
from tenure.log import FileLog, Position
from tenure.log.segment import HEAD_BYTES, list_heads, segment_name
from tenure.log.walk import Walk
from tenure.testing.simdisk import CrashMode, PowerLoss, SimDisk
from tests.log.model import Model, open_log, work

#: How the power goes; None is kill -9.
MODES: tuple[CrashMode | None, ...] = (None, "lost", "torn", "reordered", "kept")


def crash_trial(seed: int, *, generations: int) -> Counter[str]:
    """Work, lose the power somewhere, recover, check, go on with what came up; several times over."""
    random = Random(seed)
    seen: Counter[str] = Counter()
    disk = SimDisk(seed, sector_bytes=random.choice((16, 64, 512)))
    model = Model()
    for _ in range(generations):
        log: FileLog | None = None
        if random.random() < 0.6:
            disk.fail_at(disk.operations + random.randint(1, 60), "crash")
            seen["inside a call"] += 1
        try:
            log, frames = open_log(disk)
            model.check(log, frames)
            seen["torn tails found"] += bool(log.report and log.report.torn_bytes)
            work(model, log, random, steps=random.randint(0, 25))
            if random.random() < 0.1:
                log.close()
                seen["after a close"] += 1
        except PowerLoss:
            pass
        if log is not None:
            model.note(log)
        mode = random.choice(MODES)
        seen[mode or "killed"] += 1
        seen["crashes"] += 1
        disk = disk.kill() if mode is None else disk.crash(mode)
    return seen


@pytest.mark.parametrize("block", range(4))
def test_no_crash_loses_an_acknowledged_batch_or_raises_a_false_alarm(block: int) -> None:
    """Faults 1, 2, 3, 4, 5, 6 and 20: 10,000 crashes, many of them inside a recovery."""
    run_crashes(range(block * 250, block * 250 + 250))


@pytest.mark.full
@pytest.mark.parametrize("block", range(20))
def test_no_crash_of_many_more_loses_an_acknowledged_batch(block: int) -> None:
    run_crashes(range(10_000 + block * 500, 10_000 + block * 500 + 500))


def run_crashes(seeds: range) -> None:
    started = time.perf_counter()
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen += crash_trial(seed, generations=10)
        except (AssertionError, Corrupt) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    seconds = time.perf_counter() - started
    print(f"\n{seen['crashes']} crashes in {seconds:.1f} s: {dict(seen)}")
    assert seen["crashes"] == 10 * len(seeds)


class Span(NamedTuple):
    """Where one batch lies, and what its frames say was synced."""

    batch: int
    start: int
    end: int
    synced_batch: int


def spans(disk: SimDisk) -> dict[str, list[Span]]:
    """Find every batch of an undamaged log, the log's own included."""
    found: dict[str, list[Span]] = {}
    for head in list_heads(disk):
        name = segment_name(head.number)
        file = disk.open(name)
        start = Position(head.number, HEAD_BYTES, head.first_batch)
        walk = Walk(disk, file, start, salt=head.salt, epoch=0, witnessed=0)
        found[name] = []
        offset = HEAD_BYTES
        for _ in walk.batches(disk.size(file)):
            found[name].append(Span(walk.batch - 1, offset, walk.offset, walk.witnessed))
            offset = walk.offset
    return found


def build(seed: int, *, sealed: bool) -> tuple[SimDisk, Model]:
    random = Random(seed)
    disk, model = SimDisk(seed), Model()
    log, _ = open_log(disk)
    work(model, log, random, steps=60)
    log.sync()
    if sealed:
        log.close()
    return disk.kill(), model


def flip_trial(disk: SimDisk, model: Model, where: dict[str, list[Span]], random: Random) -> str:
    """Flip one bit anywhere; check the outcome, and return which one it was."""
    names = list(where)
    name = random.choice(names)
    last = name == names[-1]
    size = where[name][-1].end if where[name] else HEAD_BYTES
    bit = random.randrange((size + (200 if last else 0)) * 8)
    hit = next((span for span in where[name] if span.start <= bit >> 3 < span.end), None)
    later = max((span.synced_batch for span in where[name] if hit and span.batch > hit.batch), default=-1)
    must_catch = bit >> 3 < HEAD_BYTES or (hit is not None and (not last or later >= hit.batch))
    world = disk.kill()
    world.flip_bit(name, bit)
    try:
        log, frames = open_log(world)
    except Corrupt as caught:
        error = caught
    else:
        assert not must_catch, f"bit {bit} of {name} was not caught"
        log.close()
        first_lost = hit.batch if hit is not None else log.written_batch + 1
        kept = [frame for batch, frame in model.history if batch < first_lost]
        assert frames == [frame for frame in kept if frame[2] >> 32 > model.dropped]
        return "behind the last batch" if hit is None else "in the window"
    if "segment" in error.detail and not must_catch:
        # The flip hit the declaration of a drop, which no later frame witnesses yet: refused, not guessed.
        assert hit is not None
        assert error.detail["segment"] <= model.dropped
        return "caught as a gap"
    assert must_catch, f"a false alarm: {error}"
    assert error.detail["file"] == name, error
    if error.code == "corrupt" and bit >> 3 >= HEAD_BYTES:
        assert error.detail["offset"] <= bit >> 3 < error.detail["end"], error
    return "caught"


def run_flips(seeds: range, *, flips: int, sealed: bool) -> Counter[str]:
    started = time.perf_counter()
    seen: Counter[str] = Counter()
    for seed in seeds:
        disk, model = build(seed, sealed=sealed)
        where = spans(disk)
        random = Random(seed)
        for _ in range(flips):
            try:
                seen[flip_trial(disk, model, where, random)] += 1
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    print(f"\n{seen.total()} flips in {time.perf_counter() - started:.1f} s, sealed={sealed}: {dict(seen)}")
    assert seen.total() == len(seeds) * flips
    return seen


@pytest.mark.parametrize("block", range(4))
def test_every_bit_flip_with_a_later_witness_is_caught(block: int) -> None:
    """Fault 7: 8,000 flips in logs that were closed, and so sealed: all but the seal itself has a witness."""
    seen = run_flips(range(block * 40, block * 40 + 40), flips=50, sealed=True)
    assert seen["caught"] > 1000


def test_a_flip_in_the_last_unsealed_batches_is_taken_for_a_torn_tail_and_nothing_else() -> None:
    """Fault 8: 2,000 flips in logs without a seal: the documented window, and it is no wider."""
    run_flips(range(1000, 1040), flips=50, sealed=False)


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_every_one_of_many_more_flips_with_a_witness_is_caught(block: int) -> None:
    run_flips(range(5000 + block * 200, 5200 + block * 200), flips=50, sealed=True)
