"""The batch job through Spark Connect, in a process of its own: a session of the other kind may be in this one.

    python -m tests.spark.connect_driver FOLDER FILE_URL [S3_URL]

Prints, as JSON, how the entries of each buffer arrived by which reader.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tenure.spark.jobs.ingest import ingest
from tenure.spark.jobs.plan import Limits
from tenure.spark.reader.reader import ReaderName
from tenure.spark.reader.settings import ReaderSettings
from tenure.spark.session.session import open_session
from tests.kit.buffers import QUICK
from tests.spark.folder_sink import FolderSink


def main(folder: Path, *urls: str) -> None:
    spark = open_session("connect", remote="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    found = []
    readers: list[ReaderName] = ["jvm", "python", "auto"]
    for number, url in enumerate(urls):
        for reader in readers if url.startswith("file:") else readers[2:]:
            root = folder / f"{number}-{reader}"
            root.mkdir()
            sink = FolderSink(root)
            settings = ReaderSettings(buffer=QUICK)
            limits = Limits(batches_max=2)
            summary = ingest(spark, url, sink, group=reader, reader=reader, limits=limits, settings=settings)
            rows = [[row["seq"], row["index"], row["metadata"].decode(), row["entry"].decode()] for row in sink.rows()]
            found.append({"url": url, "reader": reader, "ranges": summary.ranges, "rows": rows})
    kind = type(spark).__module__
    print(json.dumps({"session": kind, "found": found}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
