"""A streaming query in a process of its own, for tests that kill it: ``python -m tests.spark.stream_driver …``.

It drains a buffer into a Parquet directory, and prints a line for each micro-batch that is committed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tenure.spark.session.session import open_session
from tenure.spark.stream.formats import register


def main(url: str, table: str, checkpoint: str, per_trigger: str, *conf: str) -> None:
    pairs = dict(pair.split("=", 1) for pair in conf)
    spark = open_session("stream-driver", master=pairs.pop("master", "local[2]"), conf=pairs)
    register(spark)
    stream = spark.readStream.format("tenure-buffer").option("maxEntriesPerTrigger", per_trigger).load(url)
    query = (
        stream.writeStream.format("parquet")
        .option("path", table)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    commits, told = Path(checkpoint) / "commits", -1
    while query.isActive:
        done = max((int(path.name) for path in commits.glob("[0-9]*")), default=-1)
        if done > told:
            print(f"committed {done}", flush=True)
            told = done
        time.sleep(0.02)
    if (error := query.exception()) is not None:
        raise error
    print("drained", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
