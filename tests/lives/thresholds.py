"""Small limits, so that a life of some hundred commands meets every mechanism that sets in with size."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tenure.core.state.topic import Topic
from tenure.settings import Settings

__all__ = ["random_settings", "small_thresholds"]

#: Where a threshold is a constant of a module, it is lowered for as long as lives run.
_CONSTANTS: tuple[tuple[str, str, int], ...] = (
    ("tenure.core.state.deadlines", "_STALE_MIN", 1),
    ("tenure.core.state.due_order", "_CHUNK_ENTRIES_MAX", 4),
    ("tenure.core.state.seq_times", "_CHUNK_SEQS_MAX", 4),
    ("tenure.core.state.deliveries", "ENDED_JOBS_MAX", 5),
    ("tenure.core.state.deliveries", "ENDED_PER_JOB_MAX", 2),
    ("tenure.core.ready_jobs", "LETTERS_MAX", 2),
    ("tenure.core.decide.claim", "LETTERS_MAX", 2),
    ("tenure.core.suspects", "LETTERS_MAX", 2),
    ("tenure.core.decide.dead_letters", "LETTERS_MAX", 2),
    ("tenure.core.decide.redrive", "_WINDOW", 3),
    ("tenure.core.decide.reads", "_WINDOW", 3),
    ("tenure.core.decide.jobs", "_LOOKS_MAX", 3),
    ("tenure.broker.records", "_CACHE_FROM_BYTES", 64),
    ("tenure.broker.records", "_TABLES_MAX", 2),
    ("tenure.broker.records", "_YOUNG_BYTES", 700),
    ("tenure.core.decide.evict", "_WINDOW", 3),
    ("tenure.core.state.state", "_KEYED_LOOKS_MAX", 2),
    ("tenure.core.ready_jobs", "_HOPS_MAX", 2),
    ("tenure.broker.durability.trim", "_SPREAD_MS", 20),
)


@contextmanager
def small_thresholds() -> Iterator[None]:
    """Lower the constants, and give topics a hash that is the same in every process: sets of them have an order."""
    saved: list[tuple[object, str, object]] = []
    for name, constant, value in _CONSTANTS:
        module = importlib.import_module(name)
        if hasattr(module, constant):
            saved.append((module, constant, getattr(module, constant)))
            setattr(module, constant, value)
    saved.append((Topic, "__hash__", Topic.__hash__))
    Topic.__hash__ = _hash  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        for owner, constant, value_before in saved:
            setattr(owner, constant, value_before)


def _hash(topic: Topic) -> int:
    return topic.id


def random_settings(random: Random) -> Settings:
    """Choose limits of a small broker."""
    pick = random.choice
    return Settings(
        segment_bytes=pick((2048, 4096, 4096, 16384)),
        sync_interval_ms=pick((1, 50, 50, 400)),
        checkpoint_bytes=pick((500, 3_000, 20_000, 1 << 30)),
        frame_cache_bytes=pick((1, 1, 4096)),
        spare_segments=pick((1, 1, 2)),
        trim_step_bytes=pick((100, 500, 2_000)),
        base_items_max=pick((0, 3, 10_000)),
        claim_max=pick((3, 20)),
        claim_bytes_max=pick((50, 300, 4 << 20)),
        step_bytes_max=pick((50, 300, 4 << 20)),
        lost_grace_ms=pick((20, 200, 5_000)),
        suspects_wait_ms=pick((0, 100, 1_000, 30_000)),
        begun_retry_ms=pick((50, 1_000)),
        begun_retry_ms_max=pick((50, 5_000)),
        losses_max=pick((3, 4, 20)),
        wait_ms_max=30_000,
        delay_ms_max=pick((300, 86_400_000)),
        diff_records_max=pick((2, 50)),
        diff_bytes_max=pick((100, 1 << 20)),
        page_max=pick((2, 100)),
        idempotency_keys_max=pick((3, 1_000)),
        client_marks_max=pick((2, 100)),
        unique_keys_max=pick((2, 100)),
        waiters_max=pick((3, 50, 50)),
        subscriber_events_max=pick((4, 1_000)),
        pending_bytes_max=pick((2_000, 1 << 20, 1 << 20)),
        router_step_records=pick((1, 3, 100)),
        router_step_bytes=pick((1, 100, 1 << 17)),
        router_pending_bytes_max=pick((1, 300, 1 << 20)),
        routers_per_source_max=pick((1, 2, 100)),
        turn_topics_max=pick((1, 2, 100)),
        turn_ms_max=0,  # one step a turn, whatever the machine's clock says
        step_jobs_max=pick((1, 2, 1_000)),
        retired_names_max=pick((1, 100)),
        total_bytes_max=pick((0, 0, 0, 20_000)),
    )
