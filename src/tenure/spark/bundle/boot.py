"""The loader inside an archive of `tenure spark bundle`, where it is ``_tenure_bundle`` and may import only Python.

Spark puts the archive on the path of every Python task as it is, and Python loads no compiled module out of an archive.
So each package in it is, on that path, a module of two lines that calls ``load``: it unpacks the archive beside itself,
once for all tasks of an executor, and puts the real package in its place.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import zipfile

__all__ = ["load", "unpack"]

ABOUT = "_tenure_bundle.json"
PACKAGES = "packages"


def load(name: str) -> None:
    """Replace the stub module of this name by the real package. Raises ImportError."""
    home = unpack(os.path.dirname(__file__))
    if home not in sys.path:
        sys.path.insert(0, home)
        importlib.invalidate_caches()
    del sys.modules[name]
    importlib.import_module(name)


def unpack(archive: str) -> str:
    """Return the directory with the packages of an archive; concurrent tasks unpack it once.

    Raises ImportError where they were made for another Python, or where the directory of the archive is read-only.
    """
    with zipfile.ZipFile(archive) as packed:
        about = json.loads(packed.read(ABOUT))
        made_for = about["python"], about["platform"]
        here = "{}.{}".format(*sys.version_info[:2]), sysconfig.get_platform()
        if made_for != here:
            raise ImportError(
                f"{archive} was made for Python {made_for[0]} on {made_for[1]}, and this is Python {here[0]} on "
                f"{here[1]}: run `tenure spark bundle` with the Python of the executors"
            )
        home = f"{archive}.{about['digest']}"
        if not os.path.isdir(home):
            _unpack(packed, home)
    return home


def _unpack(packed: zipfile.ZipFile, home: str) -> None:
    """Unpack under another name, then rename, so that the directory is whole when it has its own."""
    try:
        part = tempfile.mkdtemp(prefix=os.path.basename(home) + ".", dir=os.path.dirname(home))
    except OSError as error:
        raise ImportError(
            f"{os.path.dirname(home)} cannot be written ({error.strerror}): put the archive where it can be unpacked"
        ) from error
    try:
        packed.extractall(part, [name for name in packed.namelist() if name.startswith(PACKAGES + "/")])
        os.rename(os.path.join(part, PACKAGES), home)
    except OSError:
        if not os.path.isdir(home):  # otherwise another task was faster
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
