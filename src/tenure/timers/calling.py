"""One call of a script: sent, repeated where that is safe, and its failure said in the few errors.

    not sent, or refused by Redis       nothing changed: repeat with jitter, then the refusal (mostly Overloaded)
    no answer                           unknown: repeat where a second copy is safe, else Indeterminate

Once an attempt's outcome is unknown only a success resolves it; whatever ends the repeats then is Indeterminate.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, Protocol

import msgspec
from redis.exceptions import NoScriptError, RedisError

from tenure.backoff import backoff_ms
from tenure.contract.repeat import Repeat
from tenure.errors import Indeterminate, Overloaded, TenureError
from tenure.timers.outage import Outage
from tenure.timers.refusals import refusal_of
from tenure.timers.settings import TimersSettings
from tenure.timers.wire import Command, NoAnswer, NotSent, Wire

__all__ = ["SCRIPTS", "Answer", "Caller", "Keys", "Script", "Scripts"]

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


class Answer(msgspec.Struct, frozen=True):
    """What a script returned. ``repeated``: an earlier copy of the call may have arrived too."""

    reply: Any
    repeated: bool


class Scripts(Protocol):
    """Whoever can run the scripts: Redis, or the fake that stands for it."""

    async def call(self, name: str, topic: str, args: Command, *, repeat: Repeat) -> Answer:
        """Run a script on a topic. Raises the few errors."""
        ...

    async def wait(self, topic: str, *, timeout_ms: int | None) -> bool:
        """Return True as soon as something may be claimed, False when the time is over. Raises the few errors."""
        ...

    async def ping(self) -> bool:
        """Whether Redis answers, asked once."""
        ...

    async def close(self) -> None:
        """Let go of every connection and task."""
        ...


class Caller:
    """Runs scripts over a wire."""

    def __init__(self, wire: Wire, keys_of: Callable[[str], Keys], settings: TimersSettings, *, outage: Outage) -> None:
        self._wire = wire
        self._keys_of = keys_of
        self._settings = settings
        self._outage = outage

    async def call(self, name: str, topic: str, args: Command, *, repeat: Repeat) -> Answer:
        """Run a script until it is answered for good. Raises the few errors."""
        settings, started_s, unknown = self._settings, time.monotonic(), False
        for attempt_count in range(1, settings.attempts_max + 1):
            error: TenureError
            lost, again = False, True
            try:
                reply = await self._run(name, topic, args, repeated=unknown)
                self._outage.answered()
                return Answer(reply, unknown)
            except NotSent as failure:
                error = self._unreachable(f"Redis cannot be reached: {failure}")
            except NoAnswer as failure:
                error = self._unreachable(f"no answer came from Redis: {failure}")
                lost, again = repeat is not Repeat.READ, repeat is not Repeat.NEVER
            except RedisError as failure:
                refusal = refusal_of(failure)
                error, again = refusal.error, refusal.again
            unknown = unknown or lost
            wait_s = backoff_ms(attempt_count, min_ms=settings.backoff_min_ms, max_ms=settings.backoff_max_ms) / 1000
            spent = time.monotonic() - started_s + wait_s > settings.retry_for_ms / 1000
            if not again or spent or attempt_count == settings.attempts_max:
                raise _unknown(name, error) if unknown else error
            await asyncio.sleep(wait_s)
        raise AssertionError("the last attempt ends the call")

    async def _run(self, name: str, topic: str, args: Command, *, repeated: bool) -> Any:
        """Run a script once: by its hash, and in full where the server does not know it."""
        script, keys = SCRIPTS[name], self._keys_of(topic)
        rest = (len(keys.names), *keys.names, keys.channel, b"1" if repeated else b"0", *args)
        try:
            return await self._wire.send(keys.names[0], (b"EVALSHA", script.sha, *rest))
        except NoScriptError:
            return await self._wire.send(keys.names[0], (b"EVAL", script.text, *rest))

    def _unreachable(self, message: str) -> Overloaded:
        self._outage.failed(message)
        return Overloaded(message, code="unreachable")


def _unknown(name: str, error: TenureError) -> Indeterminate:
    message = f"the outcome of {name} is unknown, it may or may not have been carried out: {error.message}"
    return Indeterminate(message, cause=error.code)
