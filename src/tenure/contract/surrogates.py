r"""Lone surrogates: half a surrogate pair is legal in JSON text that is kept byte for byte, and the decoder refuses it.

Its escape is masked while the text around it is decoded, and put back afterwards in the parts that are kept.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["mask_all", "mask_lone", "unmask"]

_LONE: Final = re.compile(
    rb"\\u(?:(?=[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F]))"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)(?=[dD][c-fC-F][0-9a-fA-F]{2}))"
)


def mask_lone(text: bytes, word: bytes) -> bytes | None:
    """Return the text with the ``\\u`` of every unpaired surrogate replaced by ``word``; None where there is none.

    ``word`` is random: the writer of the text cannot have known it.
    """
    backslash = word[::-1] + word  # stands for an escaped backslash, whose second half begins no escape
    if word in text or not _LONE.search(text):
        return None
    return _LONE.sub(word, text.replace(rb"\\", backslash)).replace(backslash, rb"\\")


def mask_all(text: bytes, word: bytes) -> bytes | None:
    """Return the text with the ``\\u`` of every surrogate, paired or not, replaced by ``word``; None if there is none.

    Cheaper than `mask_lone` by far: no pattern is searched for. Bytes that JSON text cannot hold stand for an escaped
    backslash meanwhile.
    """
    if word in text or b"\0" in text:
        return None
    plain = text.replace(rb"\\", b"\0\0")
    masked = plain.replace(rb"\ud", word + b"d").replace(rb"\uD", word + b"D")
    return masked.replace(b"\0\0", rb"\\") if len(masked) != len(plain) else None


def unmask(text: bytes, word: bytes) -> bytes:
    """Return the text as it was before it was masked."""
    return text.replace(word, rb"\u")
