"""A worker as a process of its own, for the app of `jobs`; what it is to do comes as JSON in its one argument."""

from __future__ import annotations

import json
import logging
import resource
import sys

from tenure.worker.runtime.worker import run_app
from tenure.worker.settings import WorkerSettings
from tests.acceptance.worker.jobs import app


def main(given: str) -> int:
    options = json.loads(given)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    memory_mib = options.pop("memory_mib", 0)
    if memory_mib:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    return run_app(app, settings=WorkerSettings(**options.pop("settings", {})), **options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
