"""One server process: started on loopback, awaited, stopped by its process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.processes import family

__all__ = ["Server", "free_port", "memory_mb"]

UP_WITHIN_S = 120
DOWN_WITHIN_S = 120


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A child process that listens on a port; its output goes into a file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        port: int,
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        user: int | None = None,
    ) -> None:
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                [str(word) for word in command],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
                user=user,
            )
        self._port, self._log = port, log
        try:
            self._await_port()
        except BaseException:  # also an interrupt: nobody else knows of the child yet
            self._child.kill()
            self._child.wait()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def _await_port(self) -> None:
        end = time.monotonic() + UP_WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                if self._child.poll() is not None:
                    raise RuntimeError(f"the server ended: {self._log.read_text()[-500:]}") from None
                if time.monotonic() > end:
                    raise RuntimeError(f"nothing listens after {UP_WITHIN_S} s: see {self._log}") from None
                time.sleep(0.002)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal and wait for the end; a server that ignores it is killed."""
        if self._child.poll() is None:
            self._child.send_signal(number)
        try:
            self._child.wait(DOWN_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def memory_mb(pids: Sequence[int]) -> float:
    """Return the memory of processes and all below them, shared parts once, without the page cache of files."""
    total_kb = 0
    for pid in {each for top in pids for each in family(top)}:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:  # gone meanwhile
            continue
        fields = {line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
        total_kb += fields["Pss_Anon"] + fields["Pss_Shmem"]
    return total_kb / 1024
