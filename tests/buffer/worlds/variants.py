"""Variants of the product that break one rule of named producers, each of which the worlds must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

from tenure.buffer.manifest.decide import Known
from tenure.buffer.manifest.producers import ProducerRecord
from tenure.buffer.writing.commits import Committer
from tenure.errors import LeaseLost

__all__ = ["VARIANTS"]


class _Seen(int):
    """An ordinal with the newest name that was on the record with it."""

    newest: str


@contextmanager
def _by_the_newest_name() -> Iterator[None]:
    """Take a record whose newest name is the one seen last for one that nobody moved."""

    def recorded(self: Any) -> int:
        record = self._journal.state.producers.get(self._journal.id)
        seen = _Seen(-1 if record is None else record.ordinal)
        seen.newest = "" if record is None else record.newest_name
        return seen

    def check(self: Known, record: ProducerRecord, producer: str) -> None:
        assert isinstance(self.ordinal, _Seen)
        if record.newest_name not in {self.ordinal.newest, *self.doubtful}:
            raise LeaseLost("another producer has committed")

    with patch.object(Committer, "_recorded", recorded), patch.object(Known, "check", check):
        yield


@contextmanager
def _by_the_ordinal() -> Iterator[None]:
    """Take every ordinal on the record for one's own."""
    with patch.object(Known, "check", lambda self, record, producer: None):
        yield


@contextmanager
def _no_commit_is_in_doubt() -> Iterator[None]:
    """Take each commit that failed for one that was not carried out."""
    with patch.object(Committer, "_is_doubtful", lambda self, batch: False):
        yield


VARIANTS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {
    "by the newest name": _by_the_newest_name,
    "by the ordinal": _by_the_ordinal,
    "no commit is in doubt": _no_commit_is_in_doubt,
}
