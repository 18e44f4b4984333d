"""The Lua scripts of the timers, the names of their keys, and `Scripts`: the interface of Redis and of its fake."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any, Final, Protocol

import msgspec

from tenure.contract.repeat import Repeat
from tenure.timers.wire import Command

__all__ = ["SCRIPTS", "Answer", "Keys", "Script", "Scripts"]

_NAMES: Final = (
    *("schedule", "claim", "commit", "reject", "nack", "extend", "cancel", "cancel_all"),
    *("head", "stats", "peek", "get", "redrive", "discard"),
)
_PARTS: Final = ("due", "leased", "record", "state", "dead", "letter", "ops", "topic")


class Script(msgspec.Struct, frozen=True):
    """One script: its text, and the hash by which a server that has loaded it runs it."""

    name: str
    text: bytes
    sha: bytes


class Keys(msgspec.Struct, frozen=True):
    """The keys of a topic in Redis. One hash tag puts all of them on one node of a cluster."""

    names: tuple[bytes, ...]
    channel: bytes

    @classmethod
    def of(cls, prefix: str, topic: str) -> Keys:
        """Return the keys of a topic whose name was checked: a brace in either part would be another hash tag."""
        assert "{" not in prefix + topic
        stem = f"{prefix}:{{{topic}}}:".encode()
        return cls(tuple(stem + part.encode() for part in _PARTS), stem + b"wake")


def _load(name: str) -> Script:
    folder = files("tenure.timers") / "lua"
    text = (folder / "common.lua").read_bytes() + (folder / f"{name}.lua").read_bytes()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


SCRIPTS: Final = {name: _load(name) for name in _NAMES}


class Answer(msgspec.Struct, frozen=True):
    """The reply of a script. ``repeated``: an earlier copy of the call may have run too."""

    reply: Any
    repeated: bool


class Scripts(Protocol):
    """Runs the scripts: Redis, or its fake in memory."""

    async def call(self, name: str, topic: str, args: Command, *, repeat: Repeat) -> Answer:
        """Run a script on a topic. Raises the few errors."""
        ...

    async def wait(self, topic: str, *, timeout_ms: int | None) -> bool:
        """Return True as soon as a timer may be claimed, False after ``timeout_ms``. Raises the few errors."""
        ...

    async def ping(self) -> bool:
        """Return whether Redis answers, asked once."""
        ...

    async def close(self) -> None:
        """Close every connection and end every task."""
        ...
