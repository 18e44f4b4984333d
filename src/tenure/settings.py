"""Every limit and interval of the engine, in one place, each with its unit in its name."""

from __future__ import annotations

import msgspec

from tenure.limits import KIB, MIB

__all__ = ["Settings"]

_CHECKPOINT_SHARE = 8


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set. A 0 turns a limit off where that is said.

    Memory per thing kept, to size the limits by: 24 bytes per append call still in the log, about 75 per job in
    flight plus 220 per lease, 80 per delayed job, 60 per idempotency key, 200 per client mark, 60 plus its length per
    tagged record, 250 per unique key, 300 per failed delivery whose story is kept.
    """

    segment_bytes: int = 64 * MIB
    """Size of a segment file; a larger append gets a segment of its own."""
    sync_interval_ms: int = 50
    """Writes that nobody waits for are synced within this time."""
    clock_check_ms: int = 1_000
    """While something waits for time to pass, the clocks are looked at this often: one may have been set, or the
    machine suspended.
    """
    checkpoint_bytes: int = 256 * MIB
    """A checkpoint is written after this much log, or eight times the last checkpoint's size if that is more."""
    checkpoint_memory_bytes_max: int = 4096 * MIB
    """Memory for the process that makes a checkpoint while the broker is open; it needs about what the broker needs.
    0: none is made before the broker closes.
    """
    frame_cache_bytes: int = 8 * MIB
    """Decoded frames kept for the next read of a neighbour."""
    spare_segments: int = 2
    """The log is trimmed once it is larger than twice its live bytes plus this many segments."""
    reserve_per_job_bytes: int = 256
    """Room kept on the disk for each live job, so that it can be claimed and acked by itself when the disk is full.

    A claim and an ack take 140 bytes, and twice the length of the node's name. Half as much again is kept to rewrite
    the log. One segment is kept at the least, and none for the records of logs.
    """
    trim_step_bytes: int = 1 * MIB
    """How much a trimming step rewrites at most before other work gets its turn."""
    trim_step_ms: int = 1
    """How long a trimming step takes at most; it moves at least one append, or one topic."""
    base_items_max: int = 10_000
    """Jobs in flight, delayed, tagged and the like, and keys, of a topic whose base trimming writes in one turn. A
    larger one comes in parts, from a checkpoint that is made for it.
    """

    reboot_ms_max: int = 259_200_000
    """How much time at most is taken to have passed over a reboot or a move to another machine, when only the wall
    clock or the clock of the log's home can tell (three days).
    """
    time_mark_ms: int = 3_600_000
    """A log that has fallen silent notes the time this often, so that a reboot does not hide how long it was idle."""

    upgrade_finalize_after_ms: int = 0
    """A version that has been open for this long uses its new features without ``tenure upgrade finalize``. 0: never by
    itself, because from then on the version before cannot be started again.
    """

    records_max: int = 10_000
    """Records in one append."""
    record_bytes_max: int = 1 * MIB
    """``data`` and ``meta`` of one record."""
    append_bytes_max: int = 64 * MIB
    """All records of one append."""
    meta_bytes_max: int = 16 * KIB
    meta_keys_max: int = 64
    tag_bytes_max: int = 256
    key_bytes_max: int = 256
    """Idempotency keys, unique keys, claim ids, client ids."""
    reason_bytes_max: int = 1 * KIB
    """Why a job was nacked."""
    lost_grace_ms: int = 5_000
    """How long jobs of a worker whose stream was cut stay with it, where it isolates, without a word of it."""
    suspects_wait_ms: int = 30_000
    """How long suspects wait for a claim that asks for them, before other claims that isolate are given some."""
    begun_retry_ms: int = 1_000
    begun_retry_ms_max: int = 30_000
    """A suspect that was begun and lost comes back after the first, and twice as late each time, up to the second."""
    losses_max: int = 20
    """A job that was lost so often without having been begun is parked."""
    claim_max: int = 1_000
    """Jobs in one claim; also seqs in one ack, nack or extend."""
    claim_bytes_max: int = 4 * MIB
    """Records of the jobs in one claim (at least one job comes); the others stay ready."""
    step_bytes_max: int = 4 * MIB
    """Records that one step copies or reads: of dead letters, of a redrive, left out of a read (at least one)."""
    wait_ms_max: int = 30_000
    """How long a claim or a read may wait for something to come."""
    delay_ms_max: int = 86_400_000
    """How long a nack, or a topic's ``retry_backoff``, may hold a job back; a longer back-off is clamped."""
    diff_records_max: int = 1_000
    diff_bytes_max: int = 1 * MIB
    """One read's answer, by records and by bytes (at least one record comes)."""
    page_max: int = 1_000
    """Entries in one page of any listing."""

    topics_max: int = 100_000
    """0: no limit."""
    retired_names_max: int = 1_000
    """Names of deleted topics that only a put may make again (``auto_create`` false); 0: no limit."""
    turn_topics_max: int = 1_000
    """Topics that one turn of the loop serves; where more have something new, those of higher priority come first; 0:
    no limit.
    """
    turn_ms_max: int = 10
    """How long one turn of the loop goes on with work that has many steps, before everything else gets its turn;
    0: one step.
    """
    step_jobs_max: int = 1_000
    """Jobs that one step ends, evicts, deletes or looks at: a wave of expiries, a delete, a filtered read."""
    routers_max: int = 10_000
    """0: no limit."""
    routers_per_source_max: int = 100
    """Routers from one topic, so how many copies one record becomes at once; 0: no limit."""
    total_bytes_max: int = 0
    """Live bytes over all topics; 0: no limit."""
    idempotency_keys_max: int = 1_000_000
    """Keys kept over all topics."""
    idempotency_window_ms_max: int = 604_800_000
    """The longest ``idempotency_window_ms`` of a topic; a longer one is clamped (seven days)."""
    client_marks_max: int = 100_000
    """Client marks kept per topic; beyond, the one idle for longest gives way, if it has been for ten minutes."""
    unique_keys_max: int = 1_000_000
    """Unique keys alive per queue."""
    waiters_max: int = 10_000
    """Claims, reads and streams that wait on one broker."""
    subscriber_events_max: int = 10_000
    """Lifecycle events kept for a subscriber that does not read; then it is cut off."""
    pending_bytes_max: int = 256 * MIB
    """Bytes written but not synced before writers are turned away."""
    router_hops_max: int = 16
    """Routers a copy may pass where cycles are allowed."""
    router_step_records: int = 1_000
    router_step_bytes: int = 128 * KIB
    """Records, and bytes, that one forwarding step copies (at least one record) before other work gets its turn."""
    router_pending_bytes_max: int = 1 * MIB
    """Copies that wait for a sync before forwarding waits for it too, so that a sync which an append waits for carries
    few of them; 0: no limit.
    """

    def checkpoint_due_bytes(self, last_bytes: int) -> int:
        """Return after how much log the next checkpoint is due, where the last one has this size."""
        return max(self.checkpoint_bytes, _CHECKPOINT_SHARE * last_bytes)
