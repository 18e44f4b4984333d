"""MERGE by key: apply a range to a table whose rows are identified by their keys.

Of a range only the newest row of each key counts, by its place in the buffer. Rows in the table carry that place too,
so an older row never replaces a newer one. What makes a repeat harmless is not this, but the marker that the sink
commits with the MERGE: a key that was deleted leaves nothing to compare with.

An entry that could not be decoded has NULL in every key. Its place takes part in its key, so each one keeps its row:
otherwise all malformed entries would replace each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from tenure.errors import Invalid
from tenure.spark.decode import MALFORMED
from tenure.spark.sinks.arguments import quote_name
from tenure.spark.sinks.nested import align

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ORDER_BY", "Merge", "check_joining", "merge_of"]

ORDER_BY = ("_seq", "_index")
_RANK = "__tenure_rank"
_DELETE = "__tenure_delete"


class Merge:
    """A MERGE: rows of the same ``keys`` replace each other, the greatest ``order_by`` last.

    ``delete_when`` is SQL over the columns of the rows, true for those that delete their key's row. ``order_by`` must
    distinguish the rows of a key. Where a transformation makes several rows of one entry, name one column more. NULL is
    a key like any other, but a malformed entry, of which all keys are NULL, is replaced and deleted by no other.
    """

    def __init__(
        self, keys: Sequence[str], *, delete_when: str | None = None, order_by: Sequence[str] = ORDER_BY
    ) -> None:
        if isinstance(keys, str) or isinstance(order_by, str):
            raise Invalid("merge_keys and order_by are lists of columns")
        if not keys or not order_by:
            raise Invalid("a MERGE needs columns for merge_keys and for order_by")
        self.keys = tuple(keys)
        self.order_by = tuple(order_by)
        self.delete_when = delete_when

    def check(self, columns: Sequence[str]) -> None:
        """Raise Invalid where rows of these columns lack a key, or what orders them."""
        known = {column.lower() for column in columns}
        if missing := [column for column in (*self.keys, *self.order_by) if column.lower() not in known]:
            raise Invalid(f"the rows have no {', '.join(missing)}, which the MERGE needs", code="sink_rejected")

    def newest(self, frame: DataFrame) -> DataFrame:
        """Return the newest row of each key, with a column that says whether it is a delete."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        newest_first = [F.col(quote_name(column)).desc() for column in self.order_by]
        keys = [F.expr(key) for key in self._key("", frame.columns)]
        window = Window.partitionBy(*keys).orderBy(*newest_first)
        rows = frame
        if self.delete_when is not None:
            deletes = F.expr(self.delete_when).cast("boolean")
            if MALFORMED in frame.columns:
                deletes &= F.col(MALFORMED).isNull()
            rows = rows.withColumn(_DELETE, F.coalesce(deletes, F.lit(False)))
        return rows.withColumn(_RANK, F.row_number().over(window)).where(f"{_RANK} = 1").drop(_RANK)

    def into(self, target: str, frame: DataFrame) -> None:
        """Merge the frame's rows into ``target``, as SQL spells it. Nested fields that they lack are null."""
        spark, view = frame.sparkSession, f"tenure_{uuid.uuid4().hex}"
        there = spark.sql(f"SELECT * FROM {target}").schema
        self.newest(align(frame, there)).createOrReplaceTempView(view)
        try:
            spark.sql(self.statement(target, view, frame.columns, there=there.fieldNames()))
        finally:
            spark.catalog.dropTempView(view)

    def statement(self, target: str, source: str, columns: Sequence[str], *, there: Sequence[str] = ()) -> str:
        """Return the MERGE of ``source``, which `newest` returned, into ``target``; both as SQL spells them.

        ``columns`` are those of the rows, ``there`` those of the table.
        """
        names = [quote_name(column) for column in columns]
        clauses = [f"MERGE INTO {target} AS t USING {source} AS s ON {self._same_key(columns, there)}"]
        older = self._older()
        if self.delete_when is not None:
            clauses.append(f"WHEN MATCHED AND {older} AND s.{_DELETE} THEN DELETE")
        changes = ", ".join(f"t.{name} = s.{name}" for name in names)
        clauses.append(f"WHEN MATCHED AND {older} THEN UPDATE SET {changes}")
        kept = f" AND NOT s.{_DELETE}" if self.delete_when is not None else ""
        values = ", ".join(f"s.{name}" for name in names)
        clauses.append(f"WHEN NOT MATCHED{kept} THEN INSERT ({', '.join(names)}) VALUES ({values})")
        return "\n".join(clauses)

    def _same_key(self, columns: Sequence[str], there: Sequence[str]) -> str:
        """Return the condition that two rows have the same key: equal values, as a join by key needs them."""
        ours, theirs = self._key("s.", columns), self._key("t.", there)
        return " AND ".join(f"{their} <=> {our}" for their, our in zip_longest(theirs, ours, fillvalue="NULL"))

    def _key(self, prefix: str, columns: Sequence[str]) -> list[str]:
        """Return what identifies a row, as SQL: its keys, and of a malformed entry its place too."""
        key = [f"{prefix}{quote_name(name)}" for name in self.keys]
        if MALFORMED in columns:
            fits = f"{prefix}{quote_name(MALFORMED)} IS NULL"
            key += [f"if({fits}, NULL, {prefix}{quote_name(name)})" for name in self.order_by]
        return key

    def _older(self) -> str:
        """Return the condition that the table's row is older; one without a place, from before this MERGE, is."""
        condition = "false"
        for name in map(quote_name, reversed(self.order_by)):
            condition = f"(t.{name} < s.{name} OR (t.{name} = s.{name} AND {condition}))"
        return f"coalesce({condition}, true)"


def merge_of(keys: Sequence[str], *, delete_when: str | None, order_by: Sequence[str]) -> Merge | None:
    """Return the MERGE for a sink's arguments, None for a table that is appended to. Raises Invalid."""
    if keys:
        return Merge(keys, delete_when=delete_when, order_by=order_by)
    if delete_when is not None:
        raise Invalid("delete_when needs merge_keys: a table that is only appended to deletes nothing")
    return None


def check_joining(names: Sequence[str], *, evolve: bool) -> None:
    """Raise Invalid (``sink_rejected``) for columns that the table does not have, where none may join it."""
    if names and not evolve:
        raise Invalid(f"the table has no {', '.join(names)}, and evolve is off", code="sink_rejected")
