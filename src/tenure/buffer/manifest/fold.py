"""The fold of the manifest's deltas into its state: ``fold(state, delta) -> state``, pure and checked.

A writer folds its delta before it creates it, so this version never writes what the fold refuses. A delta in the store
that the fold refuses is ``Corrupt``: a foreign or broken writer wrote it, and no reader may continue.
"""

from __future__ import annotations

from typing import NoReturn, assert_never

import msgspec

from tenure.buffer.manifest.format import (
    FORMAT,
    Append,
    Checkpointed,
    Delta,
    Drop,
    Entry,
    Epoch,
    Floor,
    Forget,
    Frontier,
    Genesis,
    Group,
    Op,
    Requests,
    Retain,
    Seal,
    Skip,
    State,
    Trim,
    Void,
)
from tenure.buffer.manifest.keys import is_fresh_id
from tenure.buffer.manifest.producers import ProducerRecord
from tenure.errors import Corrupt

__all__ = ["fold", "invariants"]


def fold(state: State | None, delta: Delta, checksum: str) -> State:
    """Return the state after ``delta``, whose bytes have that checksum; ``None`` is the state before delta 0."""
    if state is None:
        state = _begin(delta)
    if delta.buffer != state.buffer:
        raise Corrupt(
            f"two buffers under one prefix: delta {delta.number} is of {delta.buffer}, the manifest of {state.buffer}",
            code="two_buffers",
        )
    if delta.number != state.number + 1 or delta.prev != state.chain:
        _refuse(delta, f"it does not follow delta {state.number}")
    new = msgspec.structs.replace(
        state,
        number=delta.number,
        chain=checksum,
        ts_ms=max(state.ts_ms, delta.ts_ms),
        requests=_sum(state.requests, delta.requests),
        groups=dict(state.groups),
        producers=state.producers.copy(),
        runs=list(state.runs),
        tail=list(state.tail),
    )
    for op in delta.ops:
        _apply(new, op, delta)
    return new


def _begin(delta: Delta) -> State:
    if delta.number != 0 or not delta.ops or not isinstance(delta.ops[0], Genesis):
        _refuse(delta, "a manifest begins with delta 0 and its genesis")
    return State(format=FORMAT, buffer=delta.buffer, block=delta.ops[0].block, requests=Requests())


def _sum(before: Requests | None, more: Requests | None) -> Requests | None:
    """Return what is known of both together: nothing where one of them was not counted."""
    return None if before is None or more is None else before + more


def _refuse(delta: Delta, why: str) -> NoReturn:
    raise Corrupt(f"delta {delta.number} cannot be folded: {why}", code="manifest_invalid", number=delta.number)


def _apply(state: State, op: Op, delta: Delta) -> None:
    match op:
        case Append():
            for entry in op.entries:
                _append(state, entry, delta)
        case Epoch() | Frontier() | Skip() | Drop():
            _regroup(state, op, delta)
        case Seal():
            _seal(state, op, delta)
        case Trim():
            _trim(state, op, delta)
        case Void():
            _void(state, op, delta)
        case Forget():
            _forget(state, op, delta)
        case Genesis():
            if delta.number != 0:
                _refuse(delta, "a second genesis")
            state.groups = {name: Group(0, "", 0, delta.ts_ms, 0) for name in op.groups}
        case Retain():
            if op.retain_for_ms < 0:
                _refuse(delta, f"a retention of {op.retain_for_ms} ms")
            state.retain_for_ms = op.retain_for_ms
        case Checkpointed():
            if not state.checkpoint < op.number < delta.number:
                _refuse(delta, f"checkpoint {op.number} after {state.checkpoint}")
            state.checkpoint = op.number
        case Floor():
            if op.number < state.floor or op.number > state.checkpoint + 1 or op.number % state.block:
                _refuse(delta, f"a floor at {op.number} with the checkpoint at {state.checkpoint}")
            state.floor = op.number
        case _:
            assert_never(op)


def _append(state: State, entry: Entry, delta: Delta) -> None:
    before = state.producers.get(entry.producer)
    if before is not None and entry.ordinal <= before.ordinal:
        _refuse(delta, f"batch {entry.ordinal} of producer {entry.producer} is enqueued already")
    if entry.name < state.void:
        _refuse(delta, f"batch {entry.name} is void")
    newest = entry.name if before is None else max(entry.name, before.newest_name)
    state.producers.remember(entry.producer, ProducerRecord(entry.ordinal, newest, delta.ts_ms, entry.name))
    state.newest_name = max(state.newest_name, entry.name)
    state.tail.append(entry)
    state.next_seq += 1
    state.entries_total += entry.entries
    state.bytes_total += entry.bytes


def _regroup(state: State, op: Epoch | Frontier | Skip | Drop, delta: Delta) -> None:
    group = state.groups.get(op.group)
    if isinstance(op, Epoch):
        epoch, frontier, skipped = (
            (delta.number - 1, state.first_seq, 0) if group is None else (group.epoch, group.next_seq, group.skipped)
        )
        if op.epoch != epoch + 1 or not frontier <= op.next_seq <= state.next_seq:
            _refuse(delta, f"epoch {op.epoch} at {op.next_seq} of group {op.group}")
        state.groups[op.group] = Group(op.epoch, op.consumer, op.next_seq, delta.ts_ms, skipped)
        return
    if group is None:
        _refuse(delta, f"no group {op.group}")
    if isinstance(op, Drop):
        del state.groups[op.group]
        return
    target, skipped = (op.next_seq, 0) if isinstance(op, Frontier) else (op.seq + 1, 1)
    furthest = state.next_seq if isinstance(op, Frontier) else min(state.next_seq, group.next_seq + 1)
    if op.epoch != group.epoch or not group.next_seq < target <= furthest:
        _refuse(delta, f"a frontier at {target} under epoch {op.epoch} of group {op.group}")
    state.groups[op.group] = msgspec.structs.replace(
        group, next_seq=target, ts_ms=delta.ts_ms, skipped=group.skipped + skipped
    )


def _seal(state: State, op: Seal, delta: Delta) -> None:
    run = op.run
    if run.first_seq != state.tail_seq or not 0 < run.count <= len(state.tail):
        _refuse(delta, f"a run of {run.count} from {run.first_seq} with the tail at {state.tail_seq}")
    sealed = state.tail[: run.count]
    if (run.oldest_name, run.last_ms) != (min(e.name for e in sealed), max(e.last_ms for e in sealed)):
        _refuse(delta, f"a run from {run.first_seq} that does not hold the tail's entries")
    state.runs.append(run)
    del state.tail[: run.count]


def _trim(state: State, op: Trim, delta: Delta) -> None:
    needed = min((group.next_seq for group in state.groups.values()), default=state.first_seq)
    if not state.first_seq < op.first_seq <= needed:
        _refuse(delta, f"trimmed to {op.first_seq}, while {needed} is needed")
    in_tail = op.first_seq - state.tail_seq
    state.runs = [run for run in state.runs if run.end_seq > op.first_seq]
    if in_tail > 0:
        del state.tail[:in_tail]
    state.first_seq = op.first_seq


def _void(state: State, op: Void, delta: Delta) -> None:
    oldest = state.oldest_name()
    if op.below < state.void or (oldest is not None and op.below > oldest):
        _refuse(delta, f"void below {op.below} with {state.void} void and {oldest} referenced")
    state.void = op.below
    state.producers.keep(
        lambda name, record: record.newest_name >= op.below or record.ts_ms >= op.silent_ms or not is_fresh_id(name)
    )


def _forget(state: State, op: Forget, delta: Delta) -> None:
    if op.below < state.forgotten:
        _refuse(delta, f"producers below {op.below} forgotten, with those below {state.forgotten} gone")
    state.forgotten = op.below
    state.producers.keep(lambda name, record: record.newest_name >= op.below or not is_fresh_id(name))


def invariants(state: State) -> None:
    """Raise AssertionError if the state could not have come from a fold; tests call it after every step."""
    assert 0 <= state.first_seq <= state.next_seq
    assert len(state.tail) <= state.next_seq - state.first_seq or not state.tail
    assert state.floor % state.block == 0
    assert state.retain_for_ms >= 0
    assert state.floor <= state.checkpoint + 1 <= state.number + 1
    seq = state.tail_seq
    for run in reversed(state.runs):
        assert run.end_seq == seq, "runs and tail follow each other without a gap"
        assert run.end_seq > state.first_seq, "a run that nothing needs is gone"
        seq = run.first_seq
    assert seq <= state.first_seq or seq == state.next_seq, "everything from first_seq on is listed"
    for name, group in state.groups.items():
        assert state.first_seq <= group.next_seq <= state.next_seq, name
    oldest = state.oldest_name()
    assert oldest is None or oldest >= state.void, "a void batch is not referenced"
    for entry in state.tail:
        record = state.producers.get(entry.producer)
        if record is None:
            assert entry.name < state.forgotten, (
                "a producer with a batch in the tail is remembered, or was one too many"
            )
            continue
        assert entry.ordinal <= record.ordinal or entry.name < state.forgotten
        assert entry.name <= record.newest_name or entry.name < state.forgotten
