"""Features of the log: what a version writes that versions before it cannot read.

A feature has a name and the version that first reads it. The log lists the features that it uses; a version that does
not know one of them refuses the directory before it changes anything. A feature that the log does not use yet is off,
and nothing that it covers is written: until it is turned on, the version before can be started again.

Features are only ever added. The list is the first frame of a segment, and a feature is turned on by beginning a new
segment: so the list is found at a known place, is the same for all that follows in the segment, and outlives the
segments before it. A log that uses none has no list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from tenure.errors import Corrupt

__all__ = ["FEATURES", "NO_FEATURES", "Feature", "FeatureSet", "read_list"]

_SHOWN_MAX = 10


class Feature(NamedTuple):
    """One feature. ``kinds`` are the frame kinds that it covers: they are written only where it is on."""

    name: str
    #: The first version that reads it.
    since: str
    kinds: frozenset[int] = frozenset()


FEATURES: Final[tuple[Feature, ...]] = (
    Feature("returns", "0.2.0", frozenset((37, 38, 39, 40))),
    Feature("parts", "0.2.0"),
)
"""The features that this version knows, oldest first. One that was released stays in the list for good."""


class FeatureSet:
    """The features that a log uses (``on``), and those that this version knows and the log does not use (``off``).

    Raises Corrupt, code ``unknown_feature``, where ``on`` has one that is not in ``known``.

    >>> from tenure.log.features import Feature, FeatureSet
    >>> features = FeatureSet([], known=[Feature("groups", "0.2.0")])
    >>> "groups" in features, "groups" in features.all_on()
    (False, True)
    """

    __slots__ = ("names", "off", "on")

    def __init__(self, on: Iterable[Feature] = (), *, known: Sequence[Feature] = FEATURES) -> None:
        by_name = {feature.name: feature for feature in known}
        found = list(on)
        strangers = [feature for feature in found if feature.name not in by_name]
        if strangers:
            raise _unknown(strangers)
        self.on = tuple(by_name[feature.name] for feature in found)
        #: The names of those that are on.
        self.names = frozenset(feature.name for feature in self.on)
        self.off = tuple(feature for feature in known if feature.name not in self.names)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def all_on(self) -> FeatureSet:
        """Return the set with every feature that this version knows."""
        return FeatureSet((*self.on, *self.off), known=(*self.on, *self.off))

    def kinds_off(self) -> dict[int, Feature]:
        """Return the frame kinds that must not be written, each with the feature that covers it."""
        return {kind: feature for feature in self.off for kind in feature.kinds}

    def pack(self) -> bytes:
        """Return the list as the body of a frame: JSON, so that any version can name what it does not know."""
        return msgspec.json.encode([(feature.name, feature.since) for feature in self.on])


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """A feature in the list; a later version may write more of it."""

    name: str
    since: str


NO_FEATURES: Final = FeatureSet(known=())
"""The set of a log that uses none, in a version that knows none."""


def read_list(body: bytes) -> list[Feature]:
    """Return the features that a frame lists. Raises Corrupt where the list is no such list."""
    try:
        rows = msgspec.json.decode(body, type=list[_Row])
    except msgspec.MsgspecError as error:
        raise Corrupt(
            f"the log lists its features in a form that this version cannot read ({error}): use a newer one. "
            "Nothing was changed.",
            code="unknown_feature",
        ) from error
    return [Feature(row.name, row.since) for row in rows]


def _unknown(strangers: list[Feature]) -> Corrupt:
    names = ", ".join(feature.name for feature in strangers[:_SHOWN_MAX])
    since = max((feature.since for feature in strangers), key=_version_key)
    return Corrupt(
        f"the log uses {names}, which this version does not know: it needs Tenure {since} or later. Start that "
        "version, or restore a backup from before the upgrade was finalized. Nothing was changed.",
        code="unknown_feature",
        features=[feature.name for feature in strangers],
        needs=since,
    )


def _version_key(version: str) -> list[int]:
    """Return what versions are ordered by; a part that is no number counts as 0."""
    return [int(part) if part.isdecimal() else 0 for part in version.split(".")]
