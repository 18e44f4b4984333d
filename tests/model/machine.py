"""What every state machine here shares: an engine on a simulated disk, its crashes, and replay after every step.

A subclass keeps its naive model in ``self.model``, one object that can be copied, and runs every command inside
``with self.step() as now``. After each step the log is folded again, whole and from checkpoints, and must give the
live state, to the byte (faults 20 and 43).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from types import ModuleType
from typing import Any, Protocol

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tenure.broker.durability.trim import trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.core.events import decode
from tenure.core.fold import fold
from tenure.core.state import deadlines, deliveries, due_order, seq_times
from tenure.core.state import topic as topic_module
from tenure.core.state.invariants import invariants
from tenure.core.state.snapshot import (
    QueueSnapshot,
    StateSnapshot,
    TopicSnapshot,
    dump_checkpoint,
    dump_state,
    dump_topic,
    load_checkpoint,
)
from tenure.core.state.state import State
from tenure.log import checkpoint
from tenure.log.interface import Position
from tenure.log.log import FileLog
from tenure.settings import Settings
from tenure.testing import ManualClock, SimDisk
from tenure.testing.simdisk import CrashMode

CHECKPOINTS_KEPT = 3
CRAMPED: list[tuple[ModuleType, str, int]] = [
    (deadlines, "_STALE_MIN", 1),
    (due_order, "_CHUNK_ENTRIES_MAX", 4),
    (seq_times, "_CHUNK_SEQS_MAX", 4),
    (deliveries, "ENDED_JOBS_MAX", 3),
    (deliveries, "ENDED_BYTES_MAX", 1_500),
    (deliveries, "ENDED_PER_JOB_MAX", 2),
    (topic_module, "_PACK_BITS", 2),
]
"""Thresholds so low that a short life goes beyond them."""


class Model(Protocol):
    """What a naive model must be able to do for the machine."""

    def tick(self, now: int, wall: int) -> None:
        """Let log time come to ``now`` and wall time to ``wall``."""

    def restart(self) -> None:
        """Everything that survived is durable now."""


class EngineMachine(RuleBasedStateMachine):
    """Drives an engine through crashes beside a model of it."""

    engine: Engine
    model: Any

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.clock = ManualClock()
        self.now = self.clock.wall_ms()
        self.patch = pytest.MonkeyPatch()
        self.remembered: list[tuple[Position, bytes]] = []
        #: The model after each batch since the last sync: what a power loss may leave.
        self.kept: list[tuple[int, Any]] = []

    @initialize(segment_bytes=st.sampled_from([1024, 2048, 2048, 4096]), is_cramped=st.booleans())
    def open_first(self, segment_bytes: int, is_cramped: bool) -> None:
        self.is_cramped = is_cramped
        if is_cramped:
            for module, name, value in CRAMPED:
                self.patch.setattr(module, name, value)
        self.settings = self.make_settings(segment_bytes)
        self.engine = self.opened(self.disk, from_checkpoint=False)
        self.ticked = self.engine.now()
        self.set_up()
        self.engine.sync()
        self.keep()

    def teardown(self) -> None:
        self.patch.undo()

    def make_settings(self, segment_bytes: int) -> Settings:
        return Settings(segment_bytes=segment_bytes, spare_segments=1, trim_step_bytes=512, reboot_ms_max=1 << 50)

    def set_up(self) -> None:
        """Bring engine and model to where the rules begin."""

    # Steps

    @contextmanager
    def step(self) -> Iterator[int]:
        """One command: time passes for the model as for the engine, and what was written is remembered."""
        batch, offset = self.engine.log.pending_batch, self.engine.state.wall_offset_ms
        yield self.tick()
        self.engine.write()
        # A command that was split by a roll is a state only as a whole, and a restart must know of a clock that moved.
        if self.engine.log.written_batch > batch or self.engine.state.wall_offset_ms != offset:
            self.engine.sync()
            self.model.restart()
        self.keep()

    def tick(self) -> int:
        offset = self.engine.state.wall_offset_ms
        now = self.engine.now()
        assert now == self.now, "log time runs with the time since boot"
        self.model.tick(now, now + offset)
        self.model.tick(now, now + self.engine.state.wall_offset_ms)
        self.ticked = now
        return now

    def keep(self) -> None:
        log = self.engine.log
        if log.synced_batch == log.written_batch:
            self.kept = []
        self.kept.append((log.written_batch, deepcopy(self.model)))

    def sync_now(self) -> None:
        self.engine.sync()
        self.model.restart()

    # Time

    def let_pass(self, ms: int) -> None:
        """Let time pass without a command."""
        self.clock.advance(ms)
        self.now += ms

    @rule(ms=st.sampled_from([-86_400_000, -60_000, -1_000, 1_000, 3_600_000]), noticed=st.booleans())
    def jump_wall(self, ms: int, noticed: bool) -> None:
        self.clock.jump_wall(ms)
        if noticed:
            self.notice_clock()

    def notice_clock(self) -> None:
        """Let the engine log that the wall clock moved, and make that durable: else a restart would know nothing."""
        with self.step():
            self.sync_now()

    # Crashes

    def opened(self, disk: SimDisk, *, from_checkpoint: bool) -> Engine:
        log = FileLog.open(disk, segment_bytes=self.settings.segment_bytes)
        engine = Engine(log, clock=self.clock, settings=self.settings)
        engine.recover(checkpoint.load(disk) if from_checkpoint else ())
        return engine

    def reopen(self, world: SimDisk, *, from_checkpoint: bool) -> None:
        self.disk = world
        self.engine = self.opened(world, from_checkpoint=from_checkpoint)
        self.model.restart()
        with self.step():
            self.sync_now()

    @rule(
        mode=st.sampled_from(["kill", "lost", "torn", "reordered", "kept"]),
        seed=st.integers(0, 1 << 32),
        off_ms=st.sampled_from([0, 4_000]),
        from_checkpoint=st.booleans(),
        again=st.booleans(),
    )
    def crash(self, mode: str, seed: int, off_ms: int, from_checkpoint: bool, again: bool) -> None:
        """The process is killed or the power goes, perhaps once more while it recovers."""
        if mode == "kill":
            self.notice_clock()
            world = self.disk.kill()
        else:
            world = self.power_loss(mode, seed=seed, off_ms=off_ms)  # type: ignore[arg-type]
        self.log_ended(folded(State(), read_frames(world.kill(), self.settings.segment_bytes)).log_ms)
        if again:
            self.opened(world, from_checkpoint=from_checkpoint)
            world = world.kill() if mode == "kill" else world.crash("any", seed=seed)
        self.reopen(world, from_checkpoint=from_checkpoint)

    def log_ended(self, log_ms: int) -> None:
        """The last event that survived is of this time: what the model made of a later one did not happen."""

    def power_loss(self, mode: CrashMode, *, seed: int, off_ms: int) -> SimDisk:
        """What was synced is there, and of the rest some batches, from the oldest on."""
        if self.clock.wall_ms() - self.now != self.engine.state.wall_offset_ms:
            self.notice_clock()
        synced_batch = self.engine.log.synced_batch
        world = self.disk.crash(mode, seed=seed)
        survived_batch = last_batch(world.kill(), self.settings.segment_bytes)
        assert survived_batch >= synced_batch, "what was synced survives"
        self.model = deepcopy([model for batch, model in self.kept if batch <= survived_batch][-1])
        self.clock.reboot(off_ms=off_ms)
        self.now += off_ms
        self.ticked = self.now
        return world

    # Checkpoints and trimming

    @rule(what=st.sampled_from(["sync", "save", "remember", "remember", "trim", "trim what is due"]))
    def upkeep(self, what: str) -> None:
        with self.step():
            match what:
                case "sync":
                    self.sync_now()
                case "save":
                    self.save_checkpoint()
                case "remember":
                    self.remember_checkpoint()
                case "trim":
                    self.trim()
                case _:
                    while trim_due(self.engine):
                        trim_step(self.engine)

    def save_checkpoint(self) -> None:
        self.engine.write()
        position, payload = self.engine.log.position(), self.engine.checkpoint()
        self.sync_now()
        checkpoint.save(self.disk, position, payload)

    def remember_checkpoint(self) -> None:
        """Keep a checkpoint: the log after it must lead to the live state at any later time."""
        self.engine.write()
        self.remembered = [*self.remembered, (self.engine.log.position(), self.engine.checkpoint())][-CHECKPOINTS_KEPT:]

    def trim(self) -> None:
        """Empty old segments, whether or not it is due, some of them only in part."""
        for _ in range(4):
            if len(self.engine.log.segments()) > 1:
                trim_step(self.engine)

    # What must always hold

    @invariant()
    def replay_agrees(self) -> None:
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        invariants(engine.state)
        frames = list(engine.log.replay())
        written = dump_checkpoint(engine.state)
        copied = load_checkpoint(written)
        invariants(copied)
        assert dump_checkpoint(copied) == written
        assert_same(dumped(copied, engine.state.log_ms), dumped(engine.state, engine.state.log_ms))
        let_pass(copied, self.ticked)
        invariants(copied)
        expected = dumped(copied, self.ticked)
        replayed = folded(State(), frames)
        invariants(replayed)
        let_pass(replayed, self.ticked)
        assert_same(dumped(replayed, self.ticked), expected)
        for position, payload in self.remembered:
            if engine.log.contains(position):
                resumed = folded(load_checkpoint(payload), list(engine.log.replay(position)))
                invariants(resumed)
                let_pass(resumed, self.ticked)
                assert_same(dumped(resumed, self.ticked), expected)
        self.check(copied)

    def check(self, state: State) -> None:
        """Compare the model with a copy of the live state at the time of the last step."""


def last_batch(disk: SimDisk, segment_bytes: int) -> int:
    """The last batch that a recovery finds on this disk."""
    log = FileLog.open(disk, segment_bytes=segment_bytes)
    for _ in log.replay():
        pass
    return log.written_batch - 1  # the opening is a batch too


def read_frames(disk: SimDisk, segment_bytes: int) -> list[tuple[int, int, int, bytes]]:
    """Everything that a recovery reads from this disk."""
    return list(FileLog.open(disk, segment_bytes=segment_bytes).replay())


def folded(state: State, frames: list[tuple[int, int, int, bytes]]) -> State:
    for kind, _, location, body in frames:
        fold(state, decode(kind, body), location)
    return state


def let_pass(state: State, now: int) -> None:
    for topic in state.by_id.values():
        state.pass_time(topic, now)


def dumped(state: State, now: int) -> dict[str, bytes]:
    """The canonical form of everything that is folded, but for where frames lie."""
    topics = {name: dump_topic(topic, now_ms=now) for name, topic in sorted(state.topics.items())}
    return {"": dump_state(state), **topics}


def assert_same(left: dict[str, bytes], right: dict[str, bytes]) -> None:
    """Two canonical forms are equal, or the failure says which fields are not."""
    assert left.keys() == right.keys()
    for name in left:
        if left[name] != right[name]:
            decoder = msgspec.msgpack.Decoder(TopicSnapshot if name else StateSnapshot)
            one, other = fields(decoder.decode(left[name])), fields(decoder.decode(right[name]))
            unlike = [f"{key}: {one[key]} is not {other[key]}" for key in one if one[key] != other.get(key)]
            raise AssertionError(f"{name or 'state'} folds to something else: " + "; ".join(unlike))


def fields(snapshot: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in msgspec.structs.asdict(snapshot).items():
        flat |= fields(value, f"{key}.") if isinstance(value, QueueSnapshot) else {prefix + key: value}
    return flat
