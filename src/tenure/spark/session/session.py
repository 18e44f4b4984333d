"""Open a Spark session for a command or a test: quiet, of modest size, and with what its sinks need.

A job that already has a session, on a managed cluster or under spark-submit, needs none of this.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tenure.errors import Invalid
from tenure.extras import needs_extra
from tenure.spark.session.jvm_start import check_reachable, explain, start_quietly
from tenure.spark.session.scripts import store_script
from tenure.spark.sinks.protocol import Needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["interpreter", "open_session", "spark_version"]

_SCRIPT: Final = """\
#!/bin/sh
# Made by tenure; may be deleted at any time.
export PYTHONPATH="${{PYTHONPATH#*/python/lib/pyspark.zip:*/python/lib/py4j-*-src.zip:}}"
exec {python} "$@"
"""


def interpreter() -> str:
    """Return the value of PYSPARK_PYTHON for a local Spark."""
    if not _is_installed():
        return sys.executable
    script = _SCRIPT.format(python=shlex.quote(sys.executable))
    return str(store_script("python", script) / "python")


def _is_installed() -> bool:
    """Return whether every process finds the pyspark of this one, without the archives."""
    import pyspark

    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return str(Path(pyspark.__file__).parents[1]) in {*site.getsitepackages(), *named}


_JOINED: Final = ("spark.jars.packages", "spark.jars", "spark.sql.extensions", "spark.jars.repositories")
_EVERYWHERE: Final = {"spark.sql.session.timeZone": "UTC"}
_OWN_DRIVER: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Rows to and from Python: faster than by TCP, and other users of the machine cannot connect. From 4.1 on.
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL: Final = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_AS_MANY_AS_CORES: Final = (
    "spark.sql.shuffle.partitions",
    # Delta reads its log in so many tasks for each commit: with its 50, a range took 5 s on two cores instead of 1.4 s.
    "spark.databricks.delta.snapshotPartitions",
)


def spark_version() -> tuple[int, int]:
    """Return major and minor version of the installed pyspark. Raises Invalid (``no_spark``) where none is."""
    for name in ("pyspark", "pyspark-client", "databricks-connect"):
        try:
            major, minor, *_ = version(name).split(".")
        except PackageNotFoundError:
            continue
        return int(major), int(minor)
    raise needs_extra("pyspark is not installed", "spark", code="no_spark")


def open_session(
    name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    needs: Sequence[Needs] = (),
) -> SparkSession:
    """Open a session: on ``master`` (default ``local[*]``), or through Spark Connect where ``remote`` is a server.

    ``conf`` wins over the defaults; lists of packages and extensions are joined with what the sinks need. Raises
    Invalid (``no_spark``, ``no_java``, ``spark_start``, ``remote_packages``) where no session can be opened, with what
    to do.
    """
    spark_version()
    if master is not None and remote is not None:
        raise Invalid("a session has a master or a remote, not both")
    remote = remote or (None if master is not None else os.environ.get("SPARK_REMOTE"))
    if remote is not None and not remote.startswith("local"):
        return _connect(name, remote, conf=conf or {}, needs=needs)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    master = master or remote or (None if under_submit else "local[*]")
    settings = _merge(_defaults(master), conf or {}, needs)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", interpreter())
    elif master is not None:
        check_reachable(master, what="master")
    if under_submit:
        return _start(lambda: _build(name, settings, master=master), where="the cluster of spark-submit")
    return start_quietly(lambda: _build(name, settings, master=master, remote=remote), where=str(master))


def _build(
    name: str, settings: Mapping[str, str], *, master: str | None = None, remote: str | None = None
) -> SparkSession:
    from pyspark.sql import SparkSession

    _hush()
    builder = SparkSession.builder.appName(name)
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _hush() -> None:
    """Stop Spark's own log of errors: since 4.0 it also logs each error that it raises, with the whole Java trace."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _connect(name: str, remote: str, *, conf: Mapping[str, str], needs: Sequence[Needs]) -> SparkSession:
    """Open a session of a Spark Connect server, whose jars and extensions were chosen where it was started."""
    static = [key for key in _JOINED if key in conf]
    if static:
        raise Invalid(
            f"a Spark Connect server has the {static[0]} that it was started with: start it with them, and leave them "
            "out here",
            code="remote_packages",
        )
    check_reachable(remote, what="remote")
    wanted = {key: value for need in needs for key, value in need.conf.items() if key not in _JOINED}
    return _start(lambda: _build(name, {**_EVERYWHERE, **wanted, **conf}, remote=remote), where=remote)


def _start(start: Callable[[], SparkSession], *, where: str) -> SparkSession:
    try:
        return start()
    except Exception as error:  # any error of Spark, gRPC or the network
        raise explain(error, where=where) from error


def _defaults(master: str | None) -> dict[str, str]:
    if master is None:
        return dict(_EVERYWHERE)
    settings = {**_EVERYWHERE, **_OWN_DRIVER}
    if master.startswith("local"):
        settings |= _LOCAL | dict.fromkeys(_AS_MANY_AS_CORES, str(max(2, _cores(master))))
    return settings


def _cores(master: str) -> int:
    """Return how many tasks a local master runs at once."""
    cores = master.removeprefix("local").strip("[]").partition(",")[0]
    return int(cores) if cores.isdigit() else (os.cpu_count() or 1) if cores == "*" else 1


def _merge(defaults: Mapping[str, str], conf: Mapping[str, str], needs: Sequence[Needs]) -> dict[str, str]:
    """Merge defaults, what the sinks need, and the user's settings, which win; lists are joined instead."""
    settings: dict[str, str] = dict(defaults)
    lists: dict[str, list[str]] = {}
    sources: list[Mapping[str, str]] = []
    for need in needs:
        sources += [{"spark.jars.packages": ",".join(need.packages)}, need.conf]
    for source in (*sources, conf):
        for key, value in source.items():
            if key in _JOINED:
                known = lists.setdefault(key, [])
                known += [item for item in map(str.strip, value.split(",")) if item and item not in known]
            else:
                settings[key] = value
    return settings | {key: ",".join(items) for key, items in lists.items() if items}
