"""The smallest sink there is: a Parquet folder per range, and a marker that names the folders that count."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.buffer import Commit
from tenure.errors import Indeterminate, Overloaded
from tenure.spark.sinks.protocol import Needs, is_held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FolderSink"]


class FolderSink:
    """``answers`` is a word per write: ``lost`` commits and says that it does not know, ``failed`` says so and did
    not, ``busy`` refuses for now, and ``doubtful`` tells of no failure but as one whose outcome is unknown.
    """

    name = "folder"
    schema_version = 1

    def __init__(self, root: Path, *answers: str) -> None:
        self.root = root
        self.answers = list(answers)
        self.commits: list[Commit] = []

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        return Needs()

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        kept = self._kept()
        return kept[-1][1] if kept else None

    def write(self, frame: DataFrame, commit: Commit) -> None:
        answer = self.answers.pop(0) if self.answers else ""
        self.commits.append(commit)
        kept = self._kept()
        if is_held(commit, kept[-1][1] if kept else None):
            return
        folder = self.root / f"{commit.low}-{uuid.uuid4().hex}"
        if answer == "failed":
            raise Indeterminate("as told")
        if answer == "busy":
            raise Overloaded("as told", code="table_busy")
        try:
            frame.write.parquet(folder.as_uri())
        except Exception as error:
            if answer != "doubtful":
                raise
            raise Indeterminate("it was not seen in the table") from error
        fresh = self.root / f"{uuid.uuid4().hex}.json"
        fresh.write_bytes(msgspec.json.encode([*kept, (commit.low, commit.high, str(folder))]))
        os.replace(fresh, self.root / "marker.json")
        if answer == "lost":
            raise Indeterminate("as told")

    def rows(self) -> list[dict[str, Any]]:
        """Every row that counts, in order."""
        import pyarrow.parquet as pq

        rows = [row for _, _, folder in self._kept() for row in pq.read_table(folder).to_pylist()]
        return sorted(rows, key=lambda row: (row["seq"], row["index"]))

    def ranges(self) -> list[tuple[int, int]]:
        return [(low, high) for low, high, _ in self._kept()]

    def _kept(self) -> list[tuple[int, int, str]]:
        marker = self.root / "marker.json"
        if not marker.exists():
            return []
        return msgspec.json.decode(marker.read_bytes(), type=list[tuple[int, int, str]])
