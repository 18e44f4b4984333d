"""The Lua scripts as they are sent: each with the common part in front, known to Redis by its SHA-1."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

import msgspec

__all__ = ["SCRIPTS", "Keys", "Script"]

_NAMES: Final = (
    *("schedule", "claim", "commit", "reject", "nack", "extend", "cancel", "cancel_all"),
    *("head", "stats", "peek", "get", "redrive", "discard"),
)
_PARTS: Final = ("due", "leased", "record", "state", "dead", "letter", "ops", "topic")


class Script(msgspec.Struct, frozen=True):
    """One script: its text, and the name under which a server that has seen it knows it."""

    name: str
    text: bytes
    sha: bytes


class Keys(msgspec.Struct, frozen=True):
    """What a topic is called in Redis. One hash tag puts all its keys on one node of a cluster."""

    names: tuple[bytes, ...]
    channel: bytes

    @classmethod
    def of(cls, prefix: str, topic: str) -> Keys:
        """The keys of a topic whose name was checked: neither part may hold a brace, which would be another tag."""
        assert "{" not in prefix + topic
        stem = f"{prefix}:{{{topic}}}:".encode()
        return cls(tuple(stem + part.encode() for part in _PARTS), stem + b"wake")


def _load(name: str) -> Script:
    folder = files("tenure.timers") / "lua"
    text = (folder / "common.lua").read_bytes() + (folder / f"{name}.lua").read_bytes()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


SCRIPTS: Final = {name: _load(name) for name in _NAMES}
