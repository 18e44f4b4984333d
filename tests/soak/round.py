"""`play`: one round of the soak: a server, load, the nemesis of a seed, a drain, and the verdict of the checker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from tenure import AsyncClient, TenureError
from tenure.testing import HistoryReport, check_history
from tests.kit.http_proxy import proxy_to
from tests.kit.restartable_server import PATIENCE_S, SMALL_LOG, Serving
from tests.kit.small_disk import CannotMount, mounted_disk
from tests.soak.clock import set_shift
from tests.soak.drain import drain
from tests.soak.excerpt import counts, excerpt
from tests.soak.journal import Journal
from tests.soak.load import DELIVERIES_MAX, LOG, MIRROR, QUEUES, Load, configs_of
from tests.soak.nemesis import Fault, Nemesis, schedule

__all__ = ["DISK_FAULTS", "Round", "play"]

DISK_FAULTS: Final = ("full_disk", "full_disk_and_kill", "full_disk_and_restart")
_DISK_BYTES: Final = 64 << 20
_END_S: Final = 120.0
_LARGER_LOG: Final = {"engine.segment_bytes": 1 << 20, "engine.checkpoint_bytes": 1 << 18}
_WATCHERS: Final = ("watcher", "second watcher")
_SERVE: Final = (sys.executable, "-P", Path(__file__).with_name("serve.py"))


class Round(msgspec.Struct):
    """What came of a seed. ``ok`` is what counts; ``text`` explains the rest."""

    seed: int
    faults: list[Fault]
    report: HistoryReport
    problems: list[str]
    done: list[tuple[int, str]]
    journal: Journal
    disk_was_small: bool

    @property
    def ok(self) -> bool:
        return self.report.ok and not self.problems

    def text(self) -> str:
        """Return the verdict and, where something is wrong, the rows around the first job that is concerned."""
        lines = [f"seed {self.seed}: {len(self.faults)} faults; {counts(self.journal.history)}", f"  {self.report}"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        if not self.report.ok:
            lines += excerpt(self.journal.history, self.report, self.done)
        return "\n".join(lines)


async def play(home: Path, *, seed: int, seconds: float) -> Round:
    """Play one round in an empty directory, which keeps the data where something is wrong."""
    home.mkdir(parents=True)
    with ExitStack() as stack:
        disk: Path | None = None
        with suppress(CannotMount):
            disk = stack.enter_context(mounted_disk(home / "disk", size_bytes=_DISK_BYTES))
        faults = schedule(seed, seconds=seconds, without=() if disk is not None else DISK_FAULTS)
        shift_file = home / "shift"
        set_shift(shift_file, 0)
        settings = Random(seed).choice((SMALL_LOG, SMALL_LOG, _LARGER_LOG))
        data = (disk or home) / "data"
        server = Serving(data, settings=settings, program=[*_SERVE, shift_file])
        stack.callback(server.close)
        server.start()
        proxy = stack.enter_context(proxy_to(server.port))
        journal = Journal()
        nemesis = Nemesis(server, proxy, journal, disk=disk, shift_file=shift_file)
        await _play(server, proxy.url, nemesis, journal, faults, seed=seed)
        journal.problems += _stop_and_verify(server)
        report = check_history(journal.history, deliveries_max=DELIVERIES_MAX)
        played = Round(seed, faults, report, journal.problems, nemesis.done, journal, disk is not None)
        if not played.ok:
            _keep(home, server, journal)
        return played


async def _play(
    server: Serving, url: str, nemesis: Nemesis, journal: Journal, faults: list[Fault], *, seed: int
) -> None:
    async with AsyncClient(server.address) as client:
        for topic, config in configs_of(seed).items():
            await client.put_topic(topic, type="queue", **config)
        await client.put_topic(LOG, durability="fsync")
        await client.put_router("copies", source=LOG, dest=MIRROR)
    load = Load(url, journal, seed=seed)
    watching = [asyncio.create_task(load.watch(name)) for name in _WATCHERS]
    working = asyncio.create_task(load.run())
    try:
        for fault in faults:
            await _strike(nemesis, fault)
            for task in (working, *watching):
                assert not task.done(), f"an actor ended by itself: {task}"
    except AssertionError as error:
        journal.problems.append(str(error))
    load.stop()
    try:
        async with asyncio.timeout(_END_S), AsyncClient(server.address) as client:
            await working
            head = await drain(client, journal, queues=list(QUEUES), log=LOG, mirror=MIRROR, dead="dead")
        journal.problems += await _wait_for_watchers(load, head=head)
    except (TenureError, TimeoutError) as error:
        journal.problems.append(f"the queues were not drained within {_END_S} s: {error!r}")
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


async def _strike(nemesis: Nemesis, fault: Fault) -> None:
    """Carry out one fault in a thread, to its end also where the run is interrupted: it may start a server."""
    striking = asyncio.ensure_future(asyncio.to_thread(nemesis.strike, fault))
    try:
        await asyncio.shield(striking)
    finally:
        await asyncio.wait([striking])


async def _wait_for_watchers(load: Load, *, head: int) -> list[str]:
    """Wait until every watcher has seen the last record; returns those that never do."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while any(load.reached.get(name, 0) < head for name in _WATCHERS):
                await asyncio.sleep(0.02)
    return [
        f"{name} saw {load.reached.get(name, 0)} of {head} records"
        for name in _WATCHERS
        if load.reached.get(name, 0) < head
    ]


def _stop_and_verify(server: Serving) -> list[str]:
    """Stop the server cleanly and read every byte of its log; returns what is wrong."""
    code = server.terminate()
    tenure = Path(sys.executable).with_name("tenure")
    verified = subprocess.run([tenure, "verify", server.home], capture_output=True, text=True, check=False)
    problems = [] if code == 0 else [f"the last stop ended with {code}:\n{server.log()}"]
    return problems if verified.returncode == 0 else [*problems, f"verify: {verified.stdout}{verified.stderr}"]


def _keep(home: Path, server: Serving, journal: Journal) -> None:
    """Write down the history and the server's log, and copy its data to where it outlives the mount."""
    (home / "history.jsonl").write_bytes(journal.history.to_lines())
    (home / "server.log").write_text(server.log())
    subprocess.run(["cp", "-r", server.home, home / "data-kept"], check=False)
