"""A real file system of a few megabytes, which is full until a file in it is removed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

__all__ = ["CannotMount", "mounted_disk", "small_disk"]


class CannotMount(Exception):
    """This user, or this machine, may not mount a file system."""


@contextmanager
def mounted_disk(target: Path, *, size_bytes: int) -> Iterator[Path]:
    """Mount an empty file system of this size. Raises CannotMount."""
    if os.geteuid() != 0:
        raise CannotMount("mounting a small file system needs root")
    target.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", target], check=False)
    if mounted.returncode != 0:
        raise CannotMount("mount was refused here")
    try:
        yield target
    finally:
        subprocess.run(["umount", "-l", target], check=False)


@contextmanager
def small_disk(target: Path, *, size_bytes: int) -> Iterator[Path]:
    """Mount a file system with 1 MiB of room, until the file ``ballast`` in it is removed; skip where none may be."""
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(mounted_disk(target, size_bytes=size_bytes))
        except CannotMount as error:
            pytest.skip(str(error))
        (disk / "ballast").write_bytes(bytes(size_bytes - (1 << 20)))
        yield disk
