"""The rows of the next call to the buffer: as many as one call takes, or exactly those of a call in doubt."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.export.follower import Step
from tenure.export.rows import Place
from tenure.export.settings import ExportSettings

__all__ = ["NextCall"]


class NextCall:
    """A collector of the log's steps for one call, which keeps what lies beyond it for the next call.

    Rows up to ``stored`` are in the buffer and are left out. A ``doubted`` call ends where it ended the first time,
    with any limits; any other ends with the row that reaches a limit.
    """

    def __init__(self, rows: list[bytes], *, stored: Place, doubted: Place | None, settings: ExportSettings) -> None:
        self._rows, self._bytes = rows, sum(map(len, rows))
        self._stored = stored
        self._doubted = doubted
        self._settings = settings
        self._beyond: Step | None = None
        self.place: Place | None = None
        """How far the steps that were taken reach; None before the first."""
        self.gaps_count = 0

    @property
    def is_doubted(self) -> bool:
        """Return whether the call is one in doubt."""
        return self._doubted is not None

    @property
    def has_rows(self) -> bool:
        """Return whether rows were taken that no call has carried yet."""
        return bool(self._rows) or self._beyond is not None

    @property
    def is_complete(self) -> bool:
        """Return whether the call ends here."""
        if self._doubted is not None:
            return self.place is not None and self.place.order >= self._doubted.order
        return self._bytes >= self._settings.call_bytes_max or len(self._rows) >= self._settings.call_rows_max

    def beyond(self) -> Iterator[Step]:
        """Return the rest of a step that did not fit into the call before."""
        step, self._beyond = self._beyond, None
        if step is not None:
            yield step

    def take(self, step: Step) -> None:
        """Add the rows of a step, as many as the call has room for."""
        assert self._beyond is None
        if step.after.order <= self._stored.order:
            self.place = step.after
            return
        step = self._drop_stored(step)
        count = self._count_fitting(step)
        if count < len(step.rows):
            step, self._beyond = _split(step, count)
        self.gaps_count += step.is_gap
        self._rows += step.rows
        self._bytes += sum(map(len, step.rows))
        self.place = step.after

    def call(self) -> list[bytes]:
        """Return the rows of the call; rows taken from here on belong to the next one."""
        rows, self._rows, self._bytes = self._rows, [], 0
        self._doubted, self.place = None, None
        return rows

    def _drop_stored(self, step: Step) -> Step:
        """Return the part of a step that follows the last row in the buffer."""
        first, stored = step.first, self._stored
        if step.is_gap or first.position.batch != stored.position.batch or first.rows >= stored.rows:
            return step
        return _split(step, stored.rows - first.rows)[1]

    def _count_fitting(self, step: Step) -> int:
        """Count the rows of a step that belong to the call."""
        if self._doubted is not None:
            is_inside = not step.is_gap and step.after.order > self._doubted.order
            return self._doubted.rows - step.first.rows if is_inside else len(step.rows)
        size, limits = self._bytes, self._settings
        most = min(len(step.rows), limits.call_rows_max - len(self._rows))
        for count, row in enumerate(step.rows[:most], start=1):
            size += len(row)
            if size >= limits.call_bytes_max:
                return count
        return most


def _split(step: Step, count: int) -> tuple[Step, Step]:
    """Split a step after its first ``count`` rows."""
    between = Place(step.first.position, step.first.rows + count)
    return step._replace(rows=step.rows[:count], after=between), step._replace(rows=step.rows[count:], first=between)
