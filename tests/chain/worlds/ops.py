"""Operations: numbers, and their bytes in a log."""

from __future__ import annotations

import re
from typing import Final

from tenure.chain.copy import DIVERGED
from tenure.testing.simdisk import SimDisk

__all__ = ["OP_BYTES", "body", "diverged_ops", "ops_in"]

OP_BYTES: Final = 15
_OP: Final = re.compile(rb"<op (\d{10})>")


def body(op: int) -> bytes:
    """Return the bytes of an operation."""
    return b"<op %010d>" % op


def ops_in(data: bytes) -> list[int]:
    """Return the operations that some bytes hold, in order."""
    return [int(number) for number in _OP.findall(data)]


def diverged_ops(disk: SimDisk) -> set[int]:
    """Return the operations that were moved aside in a directory."""
    return {op for name in disk.names() if name.startswith(f"{DIVERGED}/") for op in ops_in(disk.content(name))}
