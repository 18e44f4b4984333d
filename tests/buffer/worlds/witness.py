"""`Witness`: what was produced, what was answered, and what is in the buffer at the end."""

from __future__ import annotations

from tenure.buffer import Position
from tenure.errors import Indeterminate, TenureError
from tests.lives.anomaly import Anomaly

__all__ = ["Witness"]


class Witness:
    """The history of one world."""

    def __init__(self) -> None:
        self._produced: dict[str, list[str]] = {}
        self.acked: dict[str, Position] = {}
        self._refused: dict[str, str] = {}
        self._batches: dict[int, list[str]] = {}

    def produced(self, client: str, entry: str) -> None:
        self._produced.setdefault(client, []).append(entry)

    def acknowledged(self, entry: str, position: Position) -> None:
        self.acked[entry] = position

    def failed(self, entry: str, error: TenureError) -> None:
        """Note a failure; only Indeterminate leaves the outcome open."""
        if not isinstance(error, Indeterminate):
            self._refused[entry] = error.code

    def stored(self, seq: int, entries: list[str]) -> None:
        self._batches[seq] = entries

    def judge(self) -> None:
        """Raise Anomaly for an entry that is lost, doubled, foreign, out of order or not where its answer said."""
        found = [entry for _, entries in sorted(self._batches.items()) for entry in entries]
        if doubled := sorted({entry for entry in found if found.count(entry) > 1}):
            raise Anomaly("doubled", f"{doubled} are stored more than once")
        for entry, position in self.acked.items():
            if entry not in found:
                raise Anomaly("lost", f"{entry} was acknowledged at {position}, and is not stored")
            if self._batches[position.seq][position.start] != entry:
                raise Anomaly("misplaced", f"{entry} is not at {position}, as was answered")
        if wrong := sorted(self._refused.keys() & set(found)):
            raise Anomaly("written", f"{wrong[0]} was answered with {self._refused[wrong[0]]}, and is stored")
        if foreign := set(found).difference(*self._produced.values()):
            raise Anomaly("foreign", f"{sorted(foreign)} were never produced")
        for client, entries in self._produced.items():
            stored = [entry for entry in found if entry in set(entries)]
            if stored != [entry for entry in entries if entry in set(stored)]:
                raise Anomaly("order", f"{client} produced {entries}, stored are {stored}")
