"""API keys: read from text, kept as digests, looked up in constant time.

An entry is ``key[:scopes[:prefixes]]``. A key without scopes may do everything. An error about an entry names its place
and never its text: what is malformed is often a key in the wrong column.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from tenure.errors import Invalid

__all__ = ["SCOPES", "Key", "KeyRing", "entries_of_file", "entries_of_text", "parse_keys"]

SCOPES: Final = frozenset({"read", "write", "delete", "admin"})
_LETTERS: Final = {"r": "read", "w": "write", "d": "delete", "a": "admin"}
# What may stand in an Authorization header as it is; the colon parts the fields of an entry.
_KEY: Final = re.compile(r"[!-9;-~]{1,512}", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}", re.ASCII)
_FILE_BYTES_MAX: Final = 16 << 20
_SALT: Final = secrets.token_bytes(32)


class Key(msgspec.Struct, frozen=True):
    """The rights of a key. ``prefixes`` is None where every name is allowed.

    ``id`` is for logs and for distinguishing callers. It is made with a salt of this process, so it reveals nothing
    about the key, not even of a weak one.
    """

    id: str
    digest: bytes
    scopes: frozenset[str] = SCOPES
    prefixes: tuple[str, ...] | None = None

    def allows(self, name: str) -> bool:
        """Return whether a topic or router of this name is within the key's prefixes."""
        return self.prefixes is None or name.startswith(self.prefixes)


class KeyRing:
    """All keys of a server. ``find`` takes as long for a wrong key as for a right one."""

    __slots__ = ("keys",)

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.keys = tuple(keys)

    def __bool__(self) -> bool:
        return bool(self.keys)

    def find(self, token: str) -> Key | None:
        """Return the key that a caller presented, or None. Every digest is compared, also after a match."""
        digest, found = _digest(token), None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def entries_of_text(text: str) -> list[tuple[str, str]]:
    """Return the entries of a comma-separated list, each with the words that name its place."""
    return [(f"entry {number} of TENURE_API_KEYS", entry) for number, entry in enumerate(text.split(","), 1)]


def entries_of_file(path: Path) -> list[tuple[str, str]]:
    """Return the entries of a file, one a line; skip empty lines and those that start with ``#``. Raises Invalid.

    It is read again while the server runs, on the loop: opening a pipe would wait for whoever writes into it.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Invalid(f"the keys file {path} is not a regular file: copy the keys into one")
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid(f"the keys file {path} cannot be read: {error.strerror}") from error
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise Invalid(f"the keys file {path} is not text in UTF-8") from None
    if len(content) > _FILE_BYTES_MAX:
        raise Invalid(f"the keys file {path} is larger than {_FILE_BYTES_MAX} bytes")
    lines = ((f"line {number} of {path}", line) for number, line in enumerate(text.split("\n"), 1))
    return [(where, line) for where, line in lines if line.strip() and not line.lstrip().startswith("#")]


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def parse_keys(entries: Iterable[tuple[str, str]]) -> list[Key]:
    """Parse keys from entries with their places. Raises Invalid for the first that is malformed or given twice."""
    keys: dict[bytes, Key] = {}
    for where, entry in entries:
        key = _parse(entry.strip(), where)
        if key.digest in keys:
            raise Invalid(f"{where} repeats a key: give each key once, with all its scopes")
        keys[key.digest] = key
    return list(keys.values())


def _parse(entry: str, where: str) -> Key:
    token, *rest = entry.split(":", 2)
    if not _KEY.fullmatch(token):
        raise Invalid(f"{where} has no usable key: 1 to 512 visible ASCII characters without a colon")
    digest = _digest(token)
    scopes = _scopes(rest[0], where) if rest else SCOPES
    prefixes = _prefixes(rest[1], where) if len(rest) > 1 else None
    return Key("key_" + hashlib.blake2b(digest, digest_size=5).hexdigest(), digest, scopes, prefixes)


def _scopes(text: str, where: str) -> frozenset[str]:
    scopes = set[str]()
    for part in text.split("+"):
        if part in SCOPES:
            scopes.add(part)
        elif part and all(letter in _LETTERS for letter in part):
            scopes.update(_LETTERS[letter] for letter in part)
        else:
            raise Invalid(f"{where} has scopes that are unknown: use read+write+delete+admin, or letters of rwda")
    return frozenset(scopes)


def _prefixes(text: str, where: str) -> tuple[str, ...]:
    prefixes = tuple(text.split("|"))
    if not all(_PREFIX.fullmatch(prefix) for prefix in prefixes):
        raise Invalid(f"{where} has an unusable prefix: write the beginnings of names, parted by |, without wildcards")
    return prefixes


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=_SALT, digest_size=32).digest()
