"""The streaming source ``tenure-buffer``: a group of a buffer as a stream of micro-batches (Spark 4.2 and later).

Spark calls ``latestOffset(start, …)`` only after the micro-batch that ended at ``start`` is in its commit log: also
when the queue is idle, at the end of AvailableNow and after a restart. So the frontier follows ``start``, and the last
micro-batch is acknowledged without a listener.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tenure.buffer.batch.format import Descriptor
from tenure.errors import Conflict, Invalid, LeaseLost
from tenure.spark.jobs.plan import Plan, Planned, balance, take_fitting
from tenure.spark.reader.columns import asked_columns, spark_schema
from tenure.spark.stream.offsets import Offset
from tenure.spark.stream.options import Budget, SourceOptions
from tenure.spark.stream.read import record_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BufferSource", "BufferStreamReader"]

log = logging.getLogger(__name__)


class BufferSource(DataSource):
    """The data source ``tenure-buffer``; bad options are refused here, before anything starts."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._options = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "tenure-buffer"

    def schema(self) -> StructType:
        """Return all columns. None is ever null, and to say so saves Spark a look at each value of each row."""
        return spark_schema(nullable=False)

    def streamReader(self, schema: StructType) -> BufferStreamReader:  # noqa: N802 - Spark's name
        """Return the reader. Raises Invalid (``bad_columns``) for a schema that names other columns than a buffer's."""
        return BufferStreamReader(self._options, asked_columns(schema))


class BufferStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that plans in the query's source process and reads in tasks, which get only options and columns.

    It takes the group over with the first call that needs it, never before: a frame that is only looked at moves
    nothing.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._opened: Plan | None = None
        self._target: int | None = None  # where AvailableNow ends
        self._end = 0  # the first sequence that is not there yet, by the last read
        self._idle_since = 0.0  # when a read found too little, or 0
        self._waiting: tuple[int, float] | None = None  # what waits for minEntriesPerTrigger, and since when
        self._planned: Planned | None = None  # what latestOffset cut last, for partitions

    def __reduce__(self) -> tuple[type[BufferStreamReader], tuple[SourceOptions, pa.Schema]]:
        return BufferStreamReader, (self._options, self._schema)

    # Where the stream stands

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins. Raises Conflict for a sequence the group has passed."""
        plan, seq = self._plan(), self._options.starting
        if seq == "earliest":
            seq = plan.next_seq
        elif seq == "latest":
            seq = self._look()
        offset = Offset(seq, seq, plan.buffer_id)
        self._check(offset, begin=offset.seq)
        return offset.plain()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; ``start`` itself where there is nothing, or too little, to take.

        Raises LeaseLost when another query or job has taken the group over, Conflict for a checkpoint of another buffer
        or one that the group has passed.
        """
        offset = Offset.parse(start)
        self._acknowledge(offset)
        end = self._wait_for_news(offset.seq)
        if end <= offset.seq:
            return start
        budget = Budget.of(self._options, limit)
        first = self._first(offset.seq)
        planned = self._between(first, min(end, first + budget.limits.batches_max) - 1)
        taken = take_fitting(planned.descriptors, budget.limits) if planned else []
        if not taken or self._is_too_little(taken, budget, more=taken[-1].seq + 1 < end):
            self._idle_since = time.monotonic()
            return start
        # A range follows the one before it, also where batches that were given up lie between.
        low = offset.seq if self._options.fail_on_data_loss else taken[0].seq
        self._planned = Planned(offset.buffer, low, taken[-1].seq, tuple(taken))
        self._idle_since, self._waiting = 0.0, None
        return Offset(taken[-1].seq + 1, low, offset.buffer).plain()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the entries of a micro-batch. Not "all available", which is Trigger.Once, and is honoured."""
        return ReadMaxRows(self._options.entries_max)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of the buffer by the last read, for ``latestOffset`` of a query's progress."""
        return {"seq": self._end, "buffer": self._plan().buffer_id}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end: what comes later is for the next run."""
        self._target = self._look()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: micro-batches up to ``end`` are in Spark's log, and ``latestOffset`` got that as ``start``."""
        self._acknowledge(Offset.parse(end))

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # Reading

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch: contiguous shares of about the same number of bytes.

        The range is the one in ``end``: where the first micro-batch is run again, ``start`` was asked for again.
        """
        until = Offset.parse(end)
        if start == end:
            return []
        self._check(until, begin=until.low)
        planned = self._planned
        if planned is None or (planned.low, planned.high) != (until.low, until.seq - 1):
            planned = self._between(self._first(until.low), until.seq - 1)
        if planned is None:
            return []
        shares = balance(planned.descriptors, self._options.parts(planned.bytes))
        return [InputPartition(msgspec.msgpack.encode(share)) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one share, in a task. Raises Corrupt for a bad batch, unless losses are allowed."""
        return record_batches(
            self._options.url,
            msgspec.msgpack.decode(partition.value, type=list[Descriptor]),
            schema=self._schema,
            group=self._options.group,
            skip_lost=not self._options.fail_on_data_loss,
        )

    # The group

    def _plan(self) -> Plan:
        if self._opened is None:
            self._opened = Plan(self._options.url, group=self._options.group)
        return self._opened

    def _look(self) -> int:
        """Return the first sequence that is not there yet: one read of the manifest."""
        plan = self._plan()
        with _hint():
            self._end = plan.end_seq() + 1
        return self._end

    def _wait_for_news(self, seq: int) -> int:
        """Return where the stream may go to now; on an idle queue the manifest is read once in ``pollMs``."""
        if self._target is not None:
            return self._target
        if self._idle_since:
            time.sleep(max(0.0, self._idle_since + self._options.poll_ms / 1000 - time.monotonic()))
        end = self._look()
        self._idle_since = time.monotonic() if end <= seq else 0.0
        return end

    def _is_too_little(self, taken: Sequence[Descriptor], budget: Budget, *, more: bool) -> bool:
        """Return whether to wait for more: never at the end of AvailableNow, never beyond ``maxTriggerDelayMs``."""
        enough = sum(descriptor.entries for descriptor in taken) >= budget.entries_min
        if enough or more or self._target is not None:
            return False
        now = time.monotonic()
        if self._waiting is None or self._waiting[0] != taken[0].seq:
            self._waiting = (taken[0].seq, now)
        return now - self._waiting[1] < self._options.delay_ms_max / 1000

    def _acknowledge(self, offset: Offset) -> None:
        """Move the group's frontier to an offset that Spark has committed."""
        plan = self._plan()
        self._check(offset, begin=offset.seq)
        if offset.seq <= plan.next_seq:
            return
        with _hint():
            plan.between(offset.seq - 1, offset.seq - 1)  # a restarted query may not have planned it itself
            plan.ack_through(offset.seq - 1)

    def _first(self, seq: int) -> int:
        """Return where to read from for a range that begins at ``seq``.

        What the frontier has passed was given up, and may not be kept any more. Where losses are allowed, what is kept
        of it is read.
        """
        return max(seq, self._plan().next_seq) if self._options.fail_on_data_loss else seq

    def _between(self, low: int, high: int) -> Planned | None:
        """Return the batches of the range, or those that are left where losses are allowed; None if none are."""
        if low > high:
            return None
        try:
            with _hint():
                return self._plan().between(low, high)
        except Invalid as error:
            if self._options.fail_on_data_loss or error.code != "range_gone" or "first" not in error.detail:
                raise
            first = int(error.detail["first"])
        log.warning("batches %d to %d are not kept any more, and are skipped", low, min(first - 1, high))
        return self._between(first, high)

    def _check(self, offset: Offset, *, begin: int) -> None:
        """Raise Conflict for a checkpoint that belongs to another buffer, or to another history of this one.

        ``begin`` is where the query continues to read.
        """
        plan = self._plan()
        if offset.buffer != plan.buffer_id:
            raise Conflict(
                f"the checkpoint is of buffer {offset.buffer}, and this is {plan.buffer_id}: it was made anew, or the "
                "checkpoint is another query's. Use a new checkpoint",
                code="checkpoint_foreign",
            )
        if offset.seq > self._end and offset.seq > self._look():
            raise Conflict(
                f"the query begins at batch {offset.seq}, and the buffer ends before {self._end}: it was set back. Use "
                "a new checkpoint",
                code="checkpoint_ahead",
            )
        if self._options.fail_on_data_loss and self._is_behind(begin):
            raise Conflict(
                f"the query goes on at batch {begin}, but group {plan.group} stands at {plan.next_seq}, and what is "
                "behind it may be deleted: another query or job uses the group, or it was dropped. Give each query its "
                "own group; to go on at the group's place, use a new checkpoint; to go on with what is left, "
                "failOnDataLoss=false",
                code="checkpoint_behind",
            )

    def _is_behind(self, begin: int) -> bool:
        """Return whether the frontier has passed a batch from ``begin`` on that was not given up."""
        plan = self._plan()
        passed = plan.next_seq - begin
        return passed > 0 and len(plan.given_up(begin, plan.next_seq - 1)) < passed


@contextmanager
def _hint() -> Iterator[None]:
    """Add what to do next to the error of a fenced consumer."""
    try:
        yield
    except LeaseLost as error:
        raise LeaseLost(
            f"{error.message}. One query reads a group: stop one of the two, or give it a group of its own with "
            'option("group", …)',
            code=error.code,
        ) from None
