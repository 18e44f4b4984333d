"""`HeldJob`: one job of a lease, with its value instead of JSON."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from tenure.contract.replies import Job
from tenure.errors import Invalid

__all__ = ["HeldJob"]

T = TypeVar("T")
_decode = msgspec.json.decode


class HeldJob(Generic[T]):
    """One job of a lease. ``data`` is decoded into the queue's type on access."""

    __slots__ = ("_type", "job")

    def __init__(self, job: Job, type: Any) -> None:
        self.job = job
        self._type = type

    @property
    def seq(self) -> int:
        """The number of the job in its queue."""
        return self.job.seq

    @property
    def data(self) -> T:
        """The value that was put. Raises Invalid where it does not fit the queue's type."""
        try:
            value: T = _decode(self.job.data, type=self._type)
        except msgspec.DecodeError as error:
            raise Invalid(f"job {self.seq} does not fit the type of this queue: {error}", seq=self.seq) from error
        return value

    @property
    def meta(self) -> dict[str, Any] | None:
        """The metadata that was put with it, or None."""
        return None if self.job.meta is None else _decode(self.job.meta, type=dict[str, Any])

    @property
    def tag(self) -> str | None:
        """The tag, or None."""
        return self.job.tag

    @property
    def ts(self) -> int:
        """When the job was put, in wall ms."""
        return self.job.ts

    @property
    def deliveries(self) -> int:
        """How often the job has been handed out, this time included."""
        return self.job.deliveries

    def __repr__(self) -> str:
        tag = "" if self.tag is None else f" tag={self.tag!r}"
        return f"<{type(self).__name__} {self.seq}{tag} deliveries={self.deliveries}>"
