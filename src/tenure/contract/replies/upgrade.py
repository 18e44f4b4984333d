"""The reply about an upgrade: which features the log uses, and which wait."""

from __future__ import annotations

import msgspec

__all__ = ["FeatureInfo", "UpgradeStatus"]


class FeatureInfo(msgspec.Struct, frozen=True):
    """One feature, and the first version that reads it."""

    name: str
    since: str


class UpgradeStatus(msgspec.Struct, frozen=True):
    """The features that the log uses (``on``), and those of this version that it does not use yet (``off``).

    While one is off, the version before the upgrade can be started again. ``version`` is that of the server.
    """

    on: list[FeatureInfo]
    off: list[FeatureInfo]
    version: str = ""
