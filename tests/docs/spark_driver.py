"""Runs steps of the documentation in one Spark: a program for the Python of the installed package.

`python spark_driver.py STEPS RESULTS`: each step is a command line of `tenure` or a block of Python, with the directory
it runs in. Starting a JVM takes many times as long as most of the steps, so all of them share one.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any


def fill(url: str, *entries: str) -> None:
    """Put entries into a buffer, as some producer would have done before."""
    from tenure.buffer.blocking import Producer

    with Producer(url) as producer:
        producer.produce([entry.encode() for entry in entries])
        producer.flush()


def ended(event: Any) -> Any:
    """A stop that somebody has asked for already, so that what follows for ever ends."""
    event.set()
    return event


def _session() -> Any:
    from tenure.spark import DeltaSink, open_session
    from tenure.spark.session.session import spark_version

    return open_session("docs", master="local[2]", needs=[DeltaSink("table").needs(spark_version())])


def _settle(names: dict[str, Any]) -> None:
    """Let a query that a block has started take what is there, and stop it."""
    query = names.pop("query", None)
    if query is not None:
        if not query.awaitTermination(1):
            query.processAllAvailable()
        query.stop()
        assert query.exception() is None, query.exception()


def _command(words: list[str]) -> None:
    from tenure.cli.main import main

    sys.argv = ["tenure", *words]
    try:
        main()
    except SystemExit as left:
        if left.code:
            raise RuntimeError(f"exit code {left.code}") from None


def run(steps: list[dict[str, Any]]) -> list[str]:
    """What went wrong in each step; an empty text where nothing did."""
    names: dict[str, dict[str, Any]] = {}
    results = []
    for step in steps:
        os.chdir(step["directory"])
        sys.path[:] = [step["directory"], *[entry for entry in sys.path if entry != step["directory"]]]
        started_s = time.monotonic()
        try:
            if "command" in step:
                _command(step["command"])
            else:
                if step["page"] not in names:
                    names[step["page"]] = {"__name__": "docs", "fill": fill, "ended": ended, "spark": _session()}
                exec(compile(step["code"], step["page"], "exec"), names[step["page"]])
                _settle(names[step["page"]])
            results.append("")
        except BaseException:
            results.append(traceback.format_exc())
        about = step.get("command") or step["code"].strip().splitlines()[:1]
        print(f"{time.monotonic() - started_s:.1f} s", step["page"], *about, file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    _, source, target = sys.argv  # commands have an argv of their own
    with open(source) as file:
        told = json.load(file)
    found = run(told)
    with open(target, "w") as file:
        json.dump(found, file)
    sys.stdout.flush()
    os._exit(0)  # nobody waits for the JVM
