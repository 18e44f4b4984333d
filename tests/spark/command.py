"""A command of `tenure` that runs Spark, as a process which is watched, stopped, or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Command", "running"]

WITHIN_S = 300
LOCAL = "local[2]"


class Command:
    """The command in a process group of its own: what kills it kills its JVM too."""

    def __init__(
        self, *arguments: object, master: str = LOCAL, conf: Sequence[str] = (), packages: Path | None = None
    ) -> None:
        command = [str(Path(sys.executable).with_name("tenure")), *map(str, arguments)]
        command += ["--master", master]
        command += [part for each in ("spark.driver.memory=1g", *conf) for part in ("--conf", each)]
        environment = os.environ | ({} if packages is None else {"PYTHONPATH": str(packages)})
        if master != LOCAL:
            environment["PYSPARK_PYTHON"] = sys.executable  # the Python of a cluster's machines, which has Tenure too
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, seen: Callable[[], bool]) -> None:
        """Wait for something that the run does, while it runs."""
        until_s = time.monotonic() + WITHIN_S
        while not seen():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until_s, "it did not come that far"
            time.sleep(0.02)

    def ended(self, within_s: float = WITHIN_S) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=within_s)
        return self.process.returncode, out, err

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.communicate()


@contextmanager
def running(
    *arguments: object, master: str = LOCAL, conf: Sequence[str] = (), packages: Path | None = None
) -> Iterator[Command]:
    """Run the command; kill what is left of it in the end. ``packages`` is a directory with another pyspark."""
    command = Command(*arguments, master=master, conf=conf, packages=packages)
    try:
        yield command
    finally:
        command.kill()
