"""Making the bundle: an archive with everything that a Python task of Tenure imports.

It is made from what is installed here, so the executors run what the driver was tested with. `boot` unpacks compiled
packages on the executor.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

import tenure
from tenure.errors import Invalid
from tenure.extras import needs_extra
from tenure.spark.bundle import boot as bundle_boot
from tenure.spark.bundle.boot import ABOUT, PACKAGES

__all__ = ["Bundle", "make_bundle"]

ROOTS: Final = ("msgspec", "crc32c", "obstore", "pyarrow", "pandas", "httptools")
"""Packages that the code in tasks imports, and that Spark's own imports for rows as Arrow."""
_LOADER: Final = "_tenure_bundle"
_STAND_IN: Final = f"import {_LOADER}\n\n{_LOADER}.load(__name__)\n"
_LEFT_OUT: Final = re.compile(
    r"^(pandas/tests|pyarrow/(tests|include|src))/|(^|/)__pycache__/|\.(py[cio]|pyx|pxd|pxi|h|hpp|c|cc|a)$"
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MADE: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that the same packages make the same archive."""
_COMPRESSION: Final = 3
_FILES_MAX: Final = 50_000


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an archive: distributions with their versions, for one Python on one kind of machine."""

    path: str
    bytes: int
    python: str
    platform: str
    digest: str
    distributions: dict[str, str]


def make_bundle(out: Path, *, also: Sequence[str] = ()) -> Bundle:
    """Write the archive to ``out``, over an older one, whole or not at all; ``also`` are further distributions.

    Raises Invalid (``no_spark``) where an extra is not installed, (``bad_bundle``) for a distribution that is not
    there, and for a file at ``out`` that is not a bundle. OSError where it cannot be written.
    """
    _check_out(out)
    found = _distributions(also)
    files = dict(_own_files())
    for each in found.values():
        files.update(_files_of(each))
    if len(files) > _FILES_MAX:
        raise Invalid(f"these are more than {_FILES_MAX:,} files: leave something out", code="bad_bundle")
    versions = {"tenure": tenure.__version__} | {name: each.version for name, each in found.items()}
    about = {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "platform": sysconfig.get_platform(),
        "digest": _digest(files),
        "distributions": dict(sorted(versions.items())),
    }
    _write(out, files, about)
    return msgspec.convert(about | {"path": str(out), "bytes": out.stat().st_size}, Bundle)


def _check_out(out: Path) -> None:
    if out.is_dir():
        raise Invalid(f"{out} is a directory: name a file, such as {out / 'tenure-bundle.zip'}", code="bad_bundle")
    if out.suffix != ".zip":
        raise Invalid(f"{out} must end in .zip: Spark knows an archive by its name", code="bad_bundle")
    if out.exists() and not (zipfile.is_zipfile(out) and ABOUT in zipfile.ZipFile(out).namelist()):
        raise Invalid(f"{out} is there and is no bundle: name another file", code="bad_bundle")


def _distributions(also: Sequence[str]) -> dict[str, Distribution]:
    """Return the roots and their installed requirements, by name."""
    found: dict[str, Distribution] = {}
    waiting = [*ROOTS, *also]
    while waiting:
        name = _plain(waiting.pop())
        if name in found or name == "tenure":
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name in ROOTS:
                raise needs_extra(f"{name} is not installed", "spark", code="no_spark") from None
            if name in map(_plain, also):
                raise Invalid(f"{name} is not installed here: it cannot be bundled", code="bad_bundle") from None
            continue  # for another Python, or another machine
        for line in found[name].requires or ():
            required = _NAME.match(line)
            if required is not None and "extra ==" not in line:
                waiting.append(required[0])
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _own_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of Tenure itself, from where it is imported: it may not be installed."""
    home = Path(tenure.__file__).parent
    for path in home.rglob("*"):
        place = f"tenure/{path.relative_to(home).as_posix()}"
        if path.is_file() and not _LEFT_OUT.search(place):
            yield place, path


def _files_of(found: Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the files of a distribution, with its licence, without large tests, headers and scripts."""
    if found.files is None:
        raise Invalid(f"{found.name} does not say which files are its own: install it again", code="bad_bundle")
    for file in found.files:
        place, path = PurePosixPath(file).as_posix(), Path(str(found.locate_file(file)))
        if not place.startswith(("../", "/")) and not _LEFT_OUT.search(place) and path.is_file():
            yield place, path


def _digest(files: Mapping[str, Path]) -> str:
    whole = hashlib.sha256()
    for place, path in sorted(files.items()):
        whole.update(f"{place}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:16]


def _modules(files: Mapping[str, Path]) -> set[str]:
    """Return the names by which packages are imported."""
    tops = {place.partition("/")[0] for place in files}
    names = {top.partition(".")[0] if top.endswith((".py", ".so", ".pyd")) else top for top in tops}
    return {name for name in names if name.isidentifier()}


def _write(out: Path, files: Mapping[str, Path], about: Mapping[str, object]) -> None:
    loader = Path(bundle_boot.__file__).read_bytes()
    stand_ins = {f"{name}.py": _STAND_IN.encode() for name in sorted(_modules(files))}
    handle, temporary = tempfile.mkstemp(dir=out.parent, prefix=f"{out.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as packed:
            for place, content in {f"{_LOADER}.py": loader, ABOUT: msgspec.json.encode(about), **stand_ins}.items():
                _add(packed, place, content)
            for place, path in sorted(files.items()):
                _add(packed, f"{PACKAGES}/{place}", path.read_bytes())
        os.chmod(temporary, 0o644)
        os.replace(temporary, out)
    except BaseException:
        os.unlink(temporary)
        raise


def _add(packed: zipfile.ZipFile, place: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(place, _MADE)
    entry.external_attr = 0o644 << 16
    packed.writestr(entry, content, zipfile.ZIP_DEFLATED, _COMPRESSION)
