"""The exporter's supervisor in the server: start, restart with back-off, pin the log, and note the time in it.

The exporter is a process of its own, because a fold beside the broker's would take turns with it. It ends when its
standard input does, so it does not outlive a server that was killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from tenure.backoff import backoff_ms
from tenure.broker.broker import Broker
from tenure.errors import TenureError
from tenure.export.exporter import Progress
from tenure.export.settings import ExportSettings
from tenure.python_child import module_command, module_environment

__all__ = ["Supervisor", "child_arguments"]

log = logging.getLogger("tenure.export")

_TICK_S = 1.0
_decode = msgspec.json.Decoder(Progress).decode


def child_arguments(data: str, events: str, *, log_format: str, log_level: str, settings: ExportSettings) -> list[str]:
    """Return the arguments of `tenure export` for an exporter with these settings."""
    changed = {
        name: value
        for name, value in msgspec.structs.asdict(settings).items()
        if value != getattr(ExportSettings(), name)
    }
    sets = [f"--set=export.{name}={value}" for name, value in changed.items()]
    return ["--data", data, "--events", events, "--log-format", log_format, "--log-level", log_level, *sets]


class Supervisor:
    """One exporter, served by a broker: ``start``, then ``detach`` before the broker closes, then ``stop``."""

    def __init__(self, arguments: Sequence[str], *, settings: ExportSettings) -> None:
        self._command = module_command("tenure.cli.main", "export", "--child", *arguments)
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self.starts = 0
        self.progress = Progress()

    def start(self, broker: Broker) -> None:
        """Pin the log and start the exporter. From here on nothing is dropped that the exporter has yet to read."""
        self._pin(broker)
        self._tasks = [asyncio.create_task(self._tick(broker)), asyncio.create_task(self._keep_running())]

    def detach(self) -> None:
        """Stop using the broker, which is about to close. The exporter goes on."""
        if self._tasks:
            self._tasks[0].cancel()

    async def stop(self, timeout_s: float) -> bool:
        """Let the exporter export what is there and end it; return False where it had to be killed."""
        self._stopping.set()
        if not self._tasks:
            return True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return not late

    def metrics(self) -> dict[str, float]:
        """Return the exporter's figures, as far as it has reported them."""
        running = self._process is not None and self._process.returncode is None
        return {
            "export_up": float(running),
            "export_batch": self.progress.batch,
            "export_starts_total": self.starts,
            "export_rows_total": self.progress.rows,
            "export_gaps_total": self.progress.gaps,
        }

    # For the exporter

    async def _tick(self, broker: Broker) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            with suppress(TenureError):
                self._pin(broker)
                broker.mark_time()

    def _pin(self, broker: Broker) -> None:
        """Pin the log from where the exporter would begin if it were started now; all of it until that is known."""
        broker.pin(max(self.progress.kept_batch - 1, 0), bytes_max=self._settings.pinned_bytes_max)

    # The exporter

    async def _keep_running(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            calls = self.progress.calls
            code = await self._run()
            if self._stopping.is_set():
                break
            failures = 1 if self.progress.calls > calls else failures + 1
            wait_ms = backoff_ms(failures, min_ms=self._settings.restart_ms_min, max_ms=self._settings.restart_ms_max)
            log.warning("the exporter has ended with code %s; it is started again in %d ms", code, wait_ms)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait_ms / 1000)

    async def _run(self) -> int:
        self.starts += 1
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, env=module_environment(), start_new_session=True
        )
        assert self._process.stdout is not None
        before = self.progress
        async for line in self._process.stdout:
            with suppress(msgspec.MsgspecError):
                now = _decode(line)
                totals = (before.rows + now.rows, before.gaps + now.gaps, before.calls + now.calls)
                self.progress = Progress(now.batch, now.kept_batch, *totals)
        return await self._process.wait()
