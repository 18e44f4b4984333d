"""A real file system of a few megabytes, which is full until a file in it is removed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["small_disk"]


@contextmanager
def small_disk(target: Path, *, size_bytes: int) -> Iterator[Path]:
    """Mount a file system with 1 MiB of room, until the file ``ballast`` in it is removed; skip where none may be."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    target.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", target], check=False)
    if mounted.returncode != 0:
        pytest.skip("mount was refused here")
    try:
        (target / "ballast").write_bytes(bytes(size_bytes - (1 << 20)))
        yield target
    finally:
        subprocess.run(["umount", "-l", target], check=False)
