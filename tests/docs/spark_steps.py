"""What the documentation shows of Spark, as steps for one driver: commands and blocks, with what they stand on."""

from __future__ import annotations

import re
import shlex
from typing import Any, Final

from tests.docs.not_run import NOT_RUN
from tests.docs.reader import Reader
from tests.kit.doc_blocks import ROOT, SHELLS, blocks_of, commands_of

__all__ = ["BEFORE", "LONG", "SPARK_PAGES", "runs_spark", "steps_of"]

_SPARK: Final = re.compile(r"^tenure (?:pipeline (?:run|explain|backfill)|spark|report|compact)\b")
_ORDER: Final = '{"id": 1, "amount": 2.5, "at": "2026-11-15T08:00:00Z"}'

# What a page takes for granted: names, tables, and buffers with something in them.
BEFORE: Final[dict[str, str]] = {
    "docs/how-to/merge-by-key.md": """
from pathlib import Path
fill("s3://bucket/changes", '{"user_id": 1, "op": "set"}')
Path("user.toml").write_text('[fields]\\nuser_id = "long"\\nop = "string"\\n')
""",
    "docs/how-to/ingest-with-spark.md": """fill("s3://bucket/events", '{"id": 1, "amount": 2.5}')""",
    "docs/tour.md": """
from pathlib import Path
fill("file:///var/lib/tenure/clicks", "click")
Path("clicks.toml").write_text('''
[pipeline]
name = "clicks"
[source]
buffer = "file:///var/lib/tenure/clicks"
group = "pipeline"
[decode]
format = "text"
[sink]
kind = "parquet"
path = "clicks-table"
''')
""",
    "docs/reference/spark-sinks.md": """
from pyspark.sql import functions as F
fill("s3://bucket/events", "one")
def with_day(frame):
    return frame.withColumn("day", F.to_date("ingestion_time"))
""",
    "docs/reference/spark.md": """fill("file:///data/events", "one")""",
    "docs/reference/spark-streaming.md": """
from tenure.spark import FileTable
fill("s3://bucket/events", "one", "two")
sink = FileTable("orders-table")
def clean(frame):
    return frame
""",
    "docs/reference/spark-topics.md": """
spark.range(1).selectExpr("id", "'de' AS country").createOrReplaceTempView("orders")
""",
    "docs/how-to/compact-a-buffer.md": """fill("s3://my-bucket/events", "one")""",
    "docs/how-to/run-a-pipeline.md": f"""
from pathlib import Path
fill("s3://my-bucket/orders-buffer", '{_ORDER}')
Path("my_steps.py").write_text("def with_currency(frame):\\n    return frame\\n")
""",
    "docs/how-to/report-on-a-queue.md": "",
}
SPARK_PAGES: Final = frozenset(BEFORE)
# Each takes some 20 s, for what the first report of the how-to page does as well: `make test-full` runs them.
LONG: Final = frozenset(
    {
        "tenure report file:///var/lib/tenure/events",
        "tenure report s3://my-bucket/tenure-events --from 24h --queue mail",
        "tenure report s3://my-bucket/tenure-events --from 2026-11-09 --to 2026-11-16 --out week-46",
        "tenure report s3://my-bucket/events-table --out month",
    }
)


def runs_spark(command: str) -> bool:
    """Whether a command starts Spark, or needs it installed."""
    return _SPARK.match(command) is not None


def steps_of(name: str, reader: Reader, *, long: bool) -> list[dict[str, Any]]:
    """The steps of one page, in the reader's directory; ``long`` takes in the ones that take long."""
    common: dict[str, Any] = {"page": name, "directory": str(reader.directory)}
    steps: list[dict[str, Any]] = [common | {"code": reader.here(BEFORE[name])}]
    listed = NOT_RUN.get(name, {})
    for block in blocks_of(ROOT / name):
        if block.file is not None:
            reader.save(block)
        if block.language == "py" and block.body.splitlines()[0] not in listed:
            steps.append(common | {"code": reader.here(block.body)})
        for command in commands_of(block) if block.language in SHELLS else ():
            text = command.partition("#")[0].strip()
            if runs_spark(command) and text not in listed and (long or text not in LONG):
                steps.append(common | {"command": shlex.split(reader.here(text))[1:]})
    return steps
