"""JSON text that is kept as it came, and the names that the server gives to its own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

__all__ = ["SERVER", "MaybeRaw"]

# msgspec reads no union with Raw: where the text may be absent, the field is Raw and its default None.
if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    MaybeRaw = Raw

SERVER = {"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}
