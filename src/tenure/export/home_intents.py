"""Intents of an exporter whose log has a home: numbered objects there, so that they survive the machine.

An intent is created only if absent, before its call is made. Two exporters of one log, one of them beside a leader that
was overtaken, then make the same call: the second finds the intent of the first and must go on from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tenure.errors import Conflict, Corrupt
from tenure.export.intents import Intent
from tenure.objects.background import background
from tenure.objects.retrying import RetryingStore

__all__ = ["HomeIntents"]

_INTENT_BYTES_MAX: Final = 64 * 1024
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Intent).decode


class HomeIntents:
    """The intents of one log's export into one buffer, newest first; as `Intents`, in a store."""

    def __init__(self, store: RetryingStore, buffer: str, *, ordinal: int) -> None:
        self._store = store
        self._buffer = buffer
        found = (self._read(number) for number in (ordinal + 1, ordinal))
        self.known: Sequence[Intent] = [intent for intent in found if intent is not None]

    def write(self, intent: Intent) -> None:
        """Store this intent; raises Conflict where another exporter has stored another one under its number.

        The intents that no restart needs any more are deleted then.
        """
        key = self._key(intent.ordinal)
        if not background().run(self._store.create(key, _encode(intent))):
            raise Conflict(
                f"another exporter of this log began call {intent.ordinal} differently: begin again from its intent",
                code="export_overtaken",
            )
        if intent.ordinal >= 2:
            background().run(self._store.delete([self._key(intent.ordinal - 2)]))
        self.known = [intent, *self.known[:1]]

    def _read(self, ordinal: int) -> Intent | None:
        key = self._key(max(ordinal, 0))
        data = background().run(self._store.find(key, _INTENT_BYTES_MAX)) if ordinal >= 0 else None
        try:
            return None if data is None else _decode(data)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{key} cannot be read: {error}", key=key) from error

    def _key(self, ordinal: int) -> str:
        return f"export/{self._buffer}/{ordinal:020d}"

    def close(self) -> None:
        """Release nothing: a store needs no closing."""
