"""The lag of a group: how far it is behind the end of its buffer."""

from __future__ import annotations

import msgspec

from tenure.buffer.manifest.format import State

__all__ = ["Lag", "lag_of"]


class Lag(msgspec.Struct, frozen=True):
    """The batches that a group has not acknowledged, and how long ago the first of them was produced."""

    batches: int
    ms: int


def lag_of(state: State, next_seq: int, now_ms: int) -> Lag:
    """Return the lag of a group whose first unacknowledged batch is ``next_seq``.

    A fenced consumer may stand below what the buffer still holds: its lag counts from there.
    """
    next_seq = max(next_seq, state.first_seq)
    behind = state.next_seq - next_seq
    return Lag(behind, max(0, now_ms - _waiting_since(state, next_seq))) if behind else Lag(0, 0)


def _waiting_since(state: State, seq: int) -> int:
    """Return when the batch at ``seq`` was produced; within a run, when the run's last one was."""
    if seq >= state.tail_seq:
        return state.tail[seq - state.tail_seq].first_ms
    return next(run.last_ms for run in state.runs if run.end_seq > seq)
