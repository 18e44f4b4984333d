"""Text in the columns of partitions: values that become names of directories, which cannot hold every text.

No file system has a name with a NUL, and names on a disk have at most 255 bytes. Spark fails on such a value in the
middle of its job, with the path and without the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tenure.spark.sinks.arguments import quote_name
from tenure.spark.sinks.postgres.nul import replace_nul

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["with_directory_names"]

_NAME_BYTES_MAX: Final = 255
_ESCAPED: Final = r"""[^\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]"""
"""All but the characters for which Spark writes three bytes in a name."""
_SHOWN: Final = 40


def with_directory_names(rows: DataFrame, partition_by: Sequence[str], *, is_on_disk: bool) -> DataFrame:
    """Return the rows with U+FFFD for every NUL in a text that they are partitioned by.

    A job that reads a text which is too long for a name ends with an error that says so; ``is_on_disk`` says whether
    names have that limit.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    if not partition_by:
        return rows
    texts = {field.name for field in rows.schema.fields if isinstance(field.dataType, StringType)}
    for name in partition_by:
        if name in texts:
            value = replace_nul(f.col(quote_name(name)))
            rows = rows.withColumn(name, _checked(name, value) if is_on_disk else value)
    return rows


def _checked(name: str, value: Column) -> Column:
    """Return the value, or fail where its directory's name would be too long."""
    from pyspark.sql import functions as f

    room = _NAME_BYTES_MAX - len(f"{name}=".encode())
    escaped = f.length(f.regexp_replace(value, _ESCAPED, ""))
    # Hardly any value is so long that its characters have to be looked at.
    is_long = (f.octet_length(value) * 3 > room) & (f.octet_length(value) + escaped * 2 > room)
    beginning = f.concat(f.substring(value, 1, _SHOWN), f.lit("…"))
    text = f"the table is partitioned by {name}, and a directory's name has at most {_NAME_BYTES_MAX} bytes: shorten "
    return f.when(is_long, f.raise_error(f.concat(f.lit(text), beginning, f.lit(" in a step")))).otherwise(value)
