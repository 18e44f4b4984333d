"""A real standalone cluster of Spark on loopback: a master and two workers, stopped by their process ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.kit.ports import free_ports

UP_WITHIN_S = 600
HOST = "127.0.0.1"
OTHER_HOST = "127.0.0.2"


class Cluster:
    """The master's URL, the directory of its pyspark if it is another one, and the workers' processes."""

    def __init__(self, url: str, workers: list[subprocess.Popen[bytes]], packages: Path | None) -> None:
        self.url = url
        self.packages = packages
        self._workers = workers

    def executors(self) -> list[int]:
        """The process ids of the executors, which are the workers' children."""
        ours = {worker.pid for worker in self._workers}
        return [pid for pid in _processes() if _parent(pid) in ours and b"ExecutorBackend" in _command(pid)]

    def kill_an_executor(self) -> int:
        """SIGKILL to the first executor that is there. Fails the test where none comes up."""
        until = time.monotonic() + UP_WITHIN_S
        while not (found := self.executors()):
            assert time.monotonic() < until, "no executor came up"
            time.sleep(0.05)
        os.kill(found[0], signal.SIGKILL)
        return found[0]


@contextmanager
def running_cluster(folder: Path, *, packages: Path | None = None) -> Iterator[Cluster]:
    """A master and two workers with a core each, on two addresses: Spark speculates on another host only.

    ``packages`` is a directory with another pyspark, which its Pythons import too.
    """
    port, web = free_ports(2)
    url = f"spark://{HOST}:{port}"
    with ExitStack() as stack:
        master = ["master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(web)]
        stack.enter_context(_started(folder, "master", master, host=HOST, packages=packages))
        workers = []
        for number, host in enumerate((HOST, OTHER_HOST)):
            options = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            work = folder / f"worker-{number}"
            options += ["--work-dir", str(work), url]
            command = ["worker.Worker", *options]
            workers.append(
                stack.enter_context(_started(folder, f"worker-{number}", command, host=host, packages=packages))
            )
        _wait_for(folder / "master.log", b"Registering worker", 2)
        yield Cluster(url, workers, packages)


@contextmanager
def _started(
    folder: Path, name: str, command: list[str], *, host: str, packages: Path | None
) -> Iterator[subprocess.Popen[bytes]]:
    home = Path(str(pyspark.__file__)).parent if packages is None else packages / "pyspark"
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{command[0]}", *command[1:]],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()  # a worker ends its executors
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, text: bytes, times: int) -> None:
    until = time.monotonic() + UP_WITHIN_S
    while log.read_bytes().count(text) < times:
        assert time.monotonic() < until, log.read_text()[-2_000:]
        time.sleep(0.1)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
