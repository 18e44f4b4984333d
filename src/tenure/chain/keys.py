"""The keys of a home's objects."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CHAIN",
    "HOME",
    "MEMBERS",
    "PARTS",
    "epoch_prefix",
    "hint_key",
    "link_key",
    "mark_key",
    "part_key",
    "parts_prefix",
]

HOME: Final = "home.json"
CHAIN: Final = "chain/"
MEMBERS: Final = "members/"
PARTS: Final = "parts/"


def link_key(epoch: int, number: int) -> str:
    """Return the key of a slot: an epoch has a directory, and its links are numbered from 0 on."""
    return f"{epoch_prefix(epoch)}{number:020d}"


def epoch_prefix(epoch: int) -> str:
    """Return what the keys of the links of an epoch begin with."""
    return f"{CHAIN}{epoch:010d}/"


def mark_key(epoch: int) -> str:
    """Return the key of the mark of an epoch: while it is absent, nothing of the epoch was ever deleted."""
    return f"freed/{epoch:010d}"


def parts_prefix(epoch: int) -> str:
    """Return what the keys of the parts of an epoch's large links begin with."""
    return f"{PARTS}{epoch:010d}/"


def part_key(epoch: int, digest: bytes) -> str:
    """Return the key of a part of a large link, which is named by its SHA-256."""
    return f"{parts_prefix(epoch)}{digest.hex()}"


def hint_key(directory: str) -> str:
    """Return the key under which the member with a directory says that it is alive; a hint, never a proof."""
    return f"{MEMBERS}{directory}.json"
