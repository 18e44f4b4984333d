"""JSON text that a reply may lack, and the names that the wire gives to the server's own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw

__all__ = ["SERVER", "MaybeRaw"]

# msgspec decodes no union with Raw: where the text may be absent, the field is Raw and its default is None.
if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    MaybeRaw = Raw

SERVER: Final = {"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}
