"""`WorkerSettings`: every limit and time of a worker process, with its unit in its name."""

from __future__ import annotations

import msgspec

from tenure.limits import MIB, check_limits

__all__ = ["WorkerSettings"]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a worker process. Raises Invalid for a number out of range.

    >>> from tenure.worker import WorkerSettings
    >>> WorkerSettings(concurrency=8).concurrency_of(100)
    8
    """

    concurrency: int = 0
    """Jobs running at once over all tasks, shared by their weights; 0: each task by its own limit alone."""
    drain_ms: int = 25_000
    """How long running jobs may go on after SIGTERM before they are cancelled and given back."""
    cancel_ms: int = 2_000
    """How long a cancelled handler may take to clean up before the worker goes on without it."""
    flush_ms: int = 5_000
    """How long the worker waits at its end for the last verdicts to be answered."""
    reconnect_min_ms: int = 100
    reconnect_max_ms: int = 5_000
    """The wait before the n-th try to reach the broker is drawn from 0 to min * 2**(n - 1), and never above max."""
    first_word_ms: int = 5_000
    """A push stream without a message after this time is buffered by a proxy: claims are used instead."""
    silence_ms: int = 45_000
    """A push stream silent for so long is dead; the server sends a heartbeat every 15 s."""
    push_again_ms: int = 300_000
    """How long claims are used before a push stream is tried again."""
    poll_wait_ms: int = 20_000
    """How long a claim waits for jobs."""
    batch_max: int = 1_000
    """Jobs in one ack, nack or extend."""
    nacks_max: int = 8
    """Nacks in flight per queue; each reason and delay needs one of its own."""
    settle_retry_ms: int = 1_000
    """The longest wait before a verdict is sent again; repeated while the lease may live."""
    startup_ms: int = 60_000
    """How long the startup hooks may take together before the worker gives up."""
    shutdown_ms: int = 10_000
    """How long the shutdown hooks may take together before the worker ends without them."""
    restart_min_ms: int = 1_000
    restart_max_ms: int = 30_000
    """The wait before a supervised worker takes jobs again is drawn from 0 to min, which doubles each time that it did
    not last for max."""
    suspects_max: int = 8
    """Jobs running at once in a process for suspects, over all tasks."""
    suspects_wait_ms: int = 30_000
    """How long a suspect waits there for others to end before it is returned."""
    suspects_idle_ms: int = 10_000
    """How long a process for suspects goes on without any."""
    suspects_restart_max_ms: int = 5_000
    """The longest wait before such a process takes jobs again after its death."""
    suspects_notice_ms: int = 1_000
    """How long a worker that asked its supervisor for such a process waits before it asks again."""
    begin_retry_ms: int = 1_000
    """The longest wait before a begin without an answer is repeated, and how long a job that must not begin now stays
    away."""
    loop_blocked_ms: int = 1_000
    """A handler that blocks the event loop for so long, or for a third of the shortest lease, is logged."""
    child_start_ms: int = 30_000
    """How long a process for CPU-bound handlers may take to import the app and run its startup hooks."""
    page_connections_max: int = 32
    """Connections to the page with metrics and probes, at once."""
    probe_ms: int = 2_000
    """How long the event loop may take to answer a probe before it counts as stuck."""
    frame_bytes_max: int = 16 * MIB
    """The largest message to or from such a process."""

    def __post_init__(self) -> None:
        check_limits(self, zero=_MAY_BE_ZERO)

    def concurrency_of(self, task_concurrency: int) -> int:
        """Return how many jobs of a task run at once, by its own limit and the one over all tasks."""
        return min(task_concurrency, self.concurrency or task_concurrency)


_MAY_BE_ZERO = frozenset({"concurrency", "drain_ms", "cancel_ms", "flush_ms", "reconnect_min_ms"})
