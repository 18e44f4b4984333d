"""Links so small that go in parts, as large ones do on a slow uplink."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

__all__ = ["make_parts_small"]


def make_parts_small(stack: ExitStack, size: int) -> None:
    """Have every link above this size go in parts of it, until the stack ends."""
    for name in ("_WHOLE_BYTES_MIN", "_WHOLE_BYTES_MAX", "_PART_BYTES_MIN", "_PART_BYTES_MAX"):
        stack.enter_context(mock.patch(f"tenure.chain.uplink.{name}", size))
