"""What a server reports of the servers that share its log's home."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["ClusterInfo", "MemberInfo", "Role"]

Role = Literal["alone", "standby", "leader"]
"""``alone``: a server without a home, or one that has not been told its address for others."""


class MemberInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One server, by the sign of life that it writes into the home."""

    url: str
    role: Role
    #: The next slot of the chain for this server, as it was when it wrote this.
    epoch: int
    number: int
    version: str
    #: How long ago another server saw it change.
    age_ms: int
    #: Why it cannot take over, whatever happens; empty where it can.
    trouble: str = ""


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One server's view of the servers that share a home."""

    role: Role
    #: Where others reach this server, and where they reach the leader; empty where it is not known.
    url: str
    leader: str
    epoch: int = 0
    number: int = 0
    #: Whether this server leads, or follows closely enough to take over.
    is_caught_up: bool = True
    #: Why a standby cannot take over, whatever happens, such as a leader of a newer version; empty where it can.
    trouble: str = ""
    follow_lag_links: int = 0
    follow_lag_ms: int = 0
    #: How long the leader may still answer what is not committed; None where that is not limited.
    grant_left_ms: int | None = None
    unshipped_bytes: int = 0
    #: Bytes of this directory that were never part of the home's history, and were moved aside.
    diverged_bytes: int = 0
    members: list[MemberInfo] = []
    #: The store that the log lives in; empty where there is none, and for a caller who may not see every topic.
    home: str = ""
