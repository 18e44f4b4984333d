"""Field types with bounds, which commands, bodies and configs share.

`msgspec` checks the bounds in ``Meta``. Those in ``extra_json_schema`` (limits of the settings, numbers above 2**63)
only document; a decision checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

__all__ = [
    "FACTOR_MAX",
    "U64_MAX",
    "Durability",
    "Factor",
    "Key",
    "LeaseIds",
    "Limit",
    "Match",
    "Name",
    "Node",
    "Priority",
    "Seqs",
    "SettledSeqs",
    "Tag",
    "Time",
    "Whole",
]

U64_MAX: Final = 2**64 - 1
FACTOR_MAX: Final = 1_000.0

Whole = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": U64_MAX})]
"""A u64. The server refuses larger numbers, because msgspec's own bounds end at 2**63."""
Limit = Annotated[int, Meta(ge=1, extra_json_schema={"maximum": U64_MAX})]
Time = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": 2**53 - 1})]
Name = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"})]
Node = Annotated[str, Meta(min_length=1, max_length=128, description="Who writes or works: 1 to 128 bytes.")]
Key = Annotated[str, Meta(min_length=1, extra_json_schema={"maxLength": 256})]
Tag = Annotated[str, Meta(extra_json_schema={"maxLength": 256})]
Seqs = Annotated[Sequence[Whole], Meta(min_length=1, extra_json_schema={"maxItems": 10_000})]
SettledSeqs = Annotated[Sequence[Whole], Meta(min_length=1, description="1 to 1000 seqs")]
LeaseIds = Annotated[Sequence[str], Meta(description="One lease id per seq, in the same order")]
Match = (
    Tag | Annotated[list[str], Meta(description='["tag","Eq","x"] or ["tag","Glob","x*"]', min_length=3, max_length=3)]
)
Durability = Annotated[
    Literal["memory", "ephemeral", "disk", "fsync", "replicated"],
    Meta(description="ephemeral is another word for memory; replicated is fsync, refused where the log has no home."),
]
Priority = Annotated[int, Meta(ge=-1000, le=1000)]
Factor = Annotated[float, Meta(ge=1, le=FACTOR_MAX)]
