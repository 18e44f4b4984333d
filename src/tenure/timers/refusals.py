"""Map error replies of Redis to the few errors, and to whether a retry may succeed.

A script is refused before its first write or not at all, so after every reply below nothing has changed.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)

from tenure.errors import Conflict, Corrupt, Denied, Overloaded, TenureError

__all__ = ["Refusal", "refusal_of"]


class Refusal(msgspec.Struct, frozen=True):
    """The error to raise, and whether the same command may succeed on a retry."""

    error: TenureError
    again: bool


# Inside a script Redis wraps the code in a longer message, which redis-py does not map to the class of the code.
_KINDS: Final[tuple[tuple[tuple[type[RedisError], ...], str, str, str], ...]] = (
    ((OutOfMemoryError,), r"\bOOM\b", "out_of_memory", "Redis is at maxmemory: free memory or raise the limit"),
    ((ReadOnlyError,), r"\bREADONLY\b", "read_only_replica", "this Redis is a read-only replica: find the primary"),
    ((BusyLoadingError,), r"\bLOADING\b", "loading", "Redis is loading its data"),
    ((), r"\bBUSY\b", "busy_script", "another script holds Redis up: wait, or SCRIPT KILL it"),
    ((), r"killed by user|Script killed", "script_killed", "the script was killed by an operator"),
    ((), r"\bNOREPLICAS\b", "no_replicas", "too few replicas are connected (min-replicas-to-write)"),
    ((), r"\bMISCONF\b", "not_persisting", "Redis cannot save to its disk and refuses writes"),
    ((ClusterDownError,), r"\bCLUSTERDOWN\b|\bMASTERDOWN\b", "cluster_down", "a part of the cluster has no primary"),
    ((TryAgainError, AskError), r"\bTRYAGAIN\b", "slot_moving", "the topic is being moved to another node"),
    ((), r"max number of clients", "too_many_clients", "Redis has no connection left"),
)
_DENIED: Final = re.compile(r"\bNOPERM\b|\bNOAUTH\b|\bWRONGPASS\b")


def refusal_of(error: RedisError) -> Refusal:
    """Return the error to raise for an error reply of Redis."""
    text = str(error)
    for kinds, pattern, code, what in _KINDS:
        if isinstance(error, kinds) or re.search(pattern, text):
            return Refusal(Overloaded(f"{what}; nothing was changed ({text})", code=code), again=True)
    if isinstance(error, (NoPermissionError, AuthenticationError)) or _DENIED.search(text):
        why = f"Redis does not let this user run the scripts of the timers: grant EVALSHA and their keys ({text})"
        return Refusal(Denied(why), again=False)
    if "WRONGTYPE" in text:
        why = f"a key of this topic holds something else: choose another prefix ({text})"
        return Refusal(Conflict(why, code="wrong_type"), again=False)
    return Refusal(Corrupt(f"Redis could not run a script of the timers: {text}", code="script_failed"), again=False)
