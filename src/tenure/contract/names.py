"""Checks of names: topics, routers, nodes, tags, client ids and keys, each with its limits.

A check returns its argument as ``str`` or raises Invalid. Names are plain ASCII; the other texts are any UTF-8 within
a limit in bytes, because bytes are what is stored. A lone surrogate has no UTF-8 form and is refused everywhere.
"""

from __future__ import annotations

import re
from typing import Final

from tenure.errors import Invalid

__all__ = [
    "CLIENT_ID_BYTES_MAX",
    "KEY_BYTES_MAX",
    "NODE_BYTES_MAX",
    "TAG_BYTES_MAX",
    "check_client_id",
    "check_key",
    "check_node",
    "check_reason",
    "check_router_name",
    "check_tag",
    "check_topic_name",
    "describe_value",
]

NODE_BYTES_MAX: Final = 128
TAG_BYTES_MAX: Final = 256
CLIENT_ID_BYTES_MAX: Final = 256
KEY_BYTES_MAX: Final = 256

_SHOWN_CHARS_MAX: Final = 48
_SHOWN_BITS_MAX: Final = 128

# Used with fullmatch: `$` would let a trailing newline through.
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", re.ASCII)
_ROUTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}", re.ASCII)


def check_topic_name(name: object) -> str:
    """Return a legal topic name unchanged, or raise Invalid."""
    if isinstance(name, str) and _TOPIC_NAME.fullmatch(name):
        return name
    raise _refusal("topic name", name, "1 to 255 of A-Z a-z 0-9 . _ : - and start with a letter or a digit")


def check_router_name(name: object) -> str:
    """Return a legal router name unchanged, or raise Invalid."""
    if isinstance(name, str) and _ROUTER_NAME.fullmatch(name):
        return name
    raise _refusal("router name", name, "1 to 255 of A-Z a-z 0-9 . _ : - > and start with a letter or a digit")


def check_node(node: object) -> str:
    """Return a worker's or writer's identity of 1 to 128 bytes unchanged, or raise Invalid."""
    if node.__class__ is str and 0 < len(node) <= NODE_BYTES_MAX and node.isascii():
        return node
    return _check_text(node, "node", bytes_min=1, bytes_max=NODE_BYTES_MAX)


def check_tag(tag: object, *, bytes_max: int = TAG_BYTES_MAX) -> str:
    """Return a tag within the limit unchanged, or raise Invalid; the empty tag is a tag."""
    return _check_text(tag, "tag", bytes_min=0, bytes_max=bytes_max)


def check_reason(reason: object, *, bytes_max: int) -> str:
    """Return the reason of a nack, at most ``bytes_max`` bytes, unchanged, or raise Invalid; it may be empty."""
    return _check_text(reason, "reason", bytes_min=0, bytes_max=bytes_max)


def check_client_id(client_id: object, *, bytes_max: int = CLIENT_ID_BYTES_MAX) -> str:
    """Return a producer's identity of 1 to ``bytes_max`` bytes unchanged, or raise Invalid."""
    return _check_text(client_id, "client_id", bytes_min=1, bytes_max=bytes_max)


def check_key(key: object, *, field: str = "idempotency_key", bytes_max: int = KEY_BYTES_MAX) -> str:
    """Return an idempotency key, unique key or claim id of 1 to ``bytes_max`` bytes unchanged, or raise Invalid.

    ``field`` is the name that the caller used for it, which the message repeats.
    """
    return _check_text(key, field, bytes_min=1, bytes_max=bytes_max)


def describe_value(value: object) -> str:
    """Return the repr of a value for an error message, cut short."""
    if isinstance(value, (str, bytes)):
        cut = value[:_SHOWN_CHARS_MAX]
        return repr(cut) if len(cut) == len(value) else f"{cut!r}… ({len(value)} long)"
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        # Python refuses to print very long integers.
        bits = value.bit_length()
        return repr(value) if bits <= _SHOWN_BITS_MAX else f"an integer of {bits} bits"
    return f"a value of type {type(value).__name__[:_SHOWN_CHARS_MAX]}"


def _check_text(value: object, what: str, *, bytes_min: int, bytes_max: int) -> str:
    if isinstance(value, str) and bytes_min <= _size_bytes(value) <= bytes_max:
        return value
    raise _refusal(what, value, f"a string of {bytes_min} to {bytes_max} bytes of UTF-8")


def _size_bytes(text: str) -> int:
    """Return the length in UTF-8, or -1 where there is no such form."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


def _refusal(what: str, value: object, wanted: str) -> Invalid:
    return Invalid(f"{what} must be {wanted}; got {describe_value(value)}")
