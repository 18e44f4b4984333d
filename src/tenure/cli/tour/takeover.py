"""The last part of the tour: two servers share a log's home, the one that leads is killed, and the other goes on."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from tenure.cli.screen import table
from tenure.cli.tour.checks import expect
from tenure.client.client import Client
from tenure.contract.replies import ClusterInfo, Job
from tenure.python_child import module_command, module_environment

__all__ = ["lose_a_server"]

_QUEUE: Final = "orders"
_WORKER: Final = "worker-1"
_LEASE_MS: Final = 60_000


class _Server:
    """One server with a directory of its own, on the home that both share."""

    def __init__(self, name: str, directory: Path, log: Path) -> None:
        self.url = f"http://127.0.0.1:{_free_port()}"
        about = ["--data", str(directory / name), "--home", (directory / "home").as_uri(), "--advertise", self.url]
        command = module_command("tenure.cli.main", "serve", *about, "--port", self.url.rpartition(":")[2])
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=out, env=module_environment(), text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        expect("listening" in line, f"the server starts: {log.read_text().strip().rpartition(chr(10))[2]}")

    def kill(self) -> None:
        """End it at once: no handler runs, nothing is flushed."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End it in good order."""
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def lose_a_server(console: Console, directory: Path) -> None:
    """Run two servers on one home, kill the one that leads, and check that nothing was lost and work goes on."""
    directory.mkdir()
    with ExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            servers.append(_Server(name, directory, directory / "servers.log"))
            stack.callback(servers[-1].end)
        client = stack.enter_context(Client(",".join(server.url for server in servers)))
        _watch_the_loss(console, client, servers)


def _watch_the_loss(console: Console, client: Client, servers: list[_Server]) -> None:
    client.put_topic(_QUEUE, type="queue", durability="replicated", leases_durable=True, lease_ms=_LEASE_MS)
    sent = client.produce(_QUEUE, [{"order": number} for number in range(100)])
    claimed = client.claim(_QUEUE, node=_WORKER, max_count=10)
    acked = client.ack(_QUEUE, [job.seq for job in claimed.jobs][:5], node=_WORKER)
    before = _led_by(client, servers)
    console.print(
        f"Two servers, one home: {before.leader} leads epoch {before.epoch}, the other follows warm. 100 orders are "
        f"stored, {_WORKER} holds 10 of them and has acked {acked.count}. Then SIGKILL for the one that leads:\n"
    )
    leader, standby = sorted(servers, key=lambda server: server.url != before.leader)
    started = time.monotonic()
    leader.kill()
    more = client.produce(_QUEUE, [{"order": 100}])
    gap_s = time.monotonic() - started
    after = _led_by(client, [standby])
    expect(after.epoch > before.epoch, "the other server leads a later epoch")
    late = client.ack(_QUEUE, [job.seq for job in claimed.jobs][5:], node=_WORKER)
    expect(late.count == 5, "the lease outlived the server that gave it")
    found = {job.seq: job.deliveries for job in _drain(client)}
    owed = {*sent.seqs, *more.seqs} - {job.seq for job in claimed.jobs}
    expect(set(found) == owed, "every order that nobody acked is there, and no other")
    expect(set(found.values()) == {1}, "no order was handed out twice")
    table(
        console,
        (f"{after.leader} leads epoch {after.epoch}", "found"),
        (
            ("the next order was accepted", f"{gap_s:.1f} s after the kill, by the same call of the same client"),
            ("orders acked before the kill", "gone, and stay gone"),
            (f"the lease of {_WORKER}", "still its own: it acks the other 5"),
            (f"the other {len(owed)} orders", "all there, each handed out once"),
        ),
    )


def _led_by(client: Client, servers: list[_Server]) -> ClusterInfo:
    """Return what the server says that answered last; it leads, and is one of these."""
    info = client.cluster()
    expect(info.role == "leader", "the server that answers leads")
    expect(info.leader in [server.url for server in servers], "it is one of the two")
    return info


def _drain(client: Client) -> list[Job]:
    jobs: list[Job] = []
    while page := client.claim(_QUEUE, node="worker-2", max_count=50).jobs:
        jobs += page
        client.ack(_QUEUE, [job.seq for job in page], node="worker-2")
    return jobs


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
