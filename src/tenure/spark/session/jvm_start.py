"""Start Spark's JVM: its output goes to a file, and a failure becomes one line."""

from __future__ import annotations

import atexit
import os
import re
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from tenure.errors import Invalid, TenureError
from tenure.spark.session.java import LOG_VARIABLE, find_java, launcher

__all__ = ["check_reachable", "explain", "start_quietly"]

T = TypeVar("T")

_CONNECT_WITHIN_S: Final = 5
_TOLD_BYTES_MAX: Final = 1 << 20
_REASON_MAX: Final = 300
_CONNECT_PORT: Final = 15002
_CAUSES: Final = (
    (r"Could not parse Master URL: '([^']*)'", "{0!r} is no master: use local[*], spark://HOST:PORT, yarn or k8s://…"),
    (r"unresolved dependency: ([^:]+)#([^;]+);(\S+?):", "the jar {0}:{1}:{2} is in no repository that can be reached"),
    (r"(?:requirement failed: |Exception: )?(Provided Maven Coordinates must be .*)", "{0}"),
    (r"ClassNotFoundException: (\S+)", "the class {0} is in none of the jars: check spark.jars.packages"),
    (r"(Invalid initial heap size|Could not reserve enough space)", "the machine has less memory than asked for: {0}"),
    (r"(?:UnknownHostException): (\S+)", "the host {0} is not known"),
    (r"(All masters are unresponsive)", "{0}"),
    (r"(?:Exception|Error): (.+)", "{0}"),
)
"""Signs of a cause in a Java trace or in the JVM's output, from the specific to the vague, and what to report."""


def start_quietly(start: Callable[[], T], *, where: str) -> T:
    """Call ``start`` with a Java found and its output in a file, which is deleted at exit after a success.

    Raises Invalid (``no_java``, ``spark_start``).
    """
    home = launcher(find_java())
    handle, name = tempfile.mkstemp(prefix="tenure-spark-", suffix=".log")
    os.close(handle)
    log = Path(name)
    with _environment(JAVA_HOME=str(home), **{LOG_VARIABLE: name}), warnings.catch_warnings():
        # Spark leaves the pipe of a JVM that did not start to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        # A local Spark Connect server is started with these settings, and gets them once more.
        warnings.filterwarnings("ignore", message="Failed to set spark", category=UserWarning)
        try:
            started = start()
        except TenureError:
            raise
        except Exception as error:
            raise explain(error, where=where, log=log) from error
    atexit.register(log.unlink, missing_ok=True)
    return started


def explain(error: Exception, *, where: str, log: Path | None = None) -> Invalid:
    """Return one line about a session that did not start: the first known cause, and where the rest is."""
    output = _tail(log) if log is not None else ""
    reason = _reason(f"{error}\n{output}" if "JAVA_GATEWAY_EXITED" not in str(error) else output)
    rest = f" (all of it: {log})" if log is not None else ""
    return Invalid(f"Spark did not start on {where}: {reason}{rest}", code="spark_start")


def check_reachable(address: str, *, what: str) -> None:
    """Raise Invalid (``spark_start``) for an address where nothing listens: Spark would try it for minutes."""
    parts = urlsplit(address)
    if parts.scheme not in ("spark", "sc"):
        return
    failures = []
    for one in parts.netloc.split(","):
        host, _, port = one.rpartition(":") if ":" in one else (one, "", str(_CONNECT_PORT))
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_WITHIN_S).close()
        except (OSError, ValueError) as error:
            failures.append(f"{one}: {error}")
        else:
            return
    raise Invalid(
        f"the {what} {address} is not reached ({'; '.join(failures)}): check that it runs and listens there",
        code="spark_start",
    )


def _reason(text: str) -> str:
    for pattern, words in _CAUSES:
        match = re.search(pattern, text)
        if match:
            return words.format(*match.groups())[:_REASON_MAX].strip()
    return " ".join(text.split())[:_REASON_MAX] or "the JVM ended without a word"


def _tail(log: Path) -> str:
    """Return the end of the JVM's output."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TOLD_BYTES_MAX))
            return file.read(_TOLD_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
