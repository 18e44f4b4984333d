"""The rules of the protocol as switches, and the bounds of a configuration.

`Rules()` is the protocol. A broken variant is `Rules` with one field changed; a field's comment names the rule, as
`docs/design/chain-model.md` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Bounds", "Case", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What members do. Every default is the protocol's; every other value is a fault or a weaker rule."""

    taken: Literal["read", "mine", "another's"] = "read"  # R2: a taken slot is read and compared
    conflict: Literal["unknown", "another's"] = "unknown"  # R2a: 409 on an empty key decides nothing
    look_after_fence: bool = True  # R4: a fence counts only if the mark of its epoch is absent afterwards
    look_after_commit: Literal["never", "lapse", "always"] = "lapse"  # R2b
    lapse_since_fence: bool = True  # R2b: before the first link, a lapse counts from when the fence was first sent
    look_at_fences: bool = True  # R5, R5b: a reader looks for the mark when it leaves an epoch
    look_before_denial: bool = True  # R7: "nothing changed" only if the mark is absent
    own_data: Literal["unknown", "denied"] = "unknown"  # R7: a later data link of my own epoch decides nothing
    own_fence: Literal["unknown", "denied"] = "unknown"  # R7: a fence of my own directory decides nothing either
    links_before: Literal["all", "one", "one, too early", "none"] = "all"  # R4: what a candidate reads after its fence
    link_before_commit: Literal["never", "lapse", "always"] = "lapse"  # R4: a leader reads the link before as well
    first_link_looks: bool = (
        True  # R2c: the first link of an epoch counts as one after a lapse, if the store may forget
    )
    read_back: bool = True  # R2c: a candidate reads its fence back
    mark_first: bool = True  # R6: the mark comes before the first delete
    keep_fences: bool = True  # R6
    keep_open_segment: bool = True  # R6: the floor is where the open segment's bytes begin
    upload_first: bool = True  # R6: a checkpoint is written after the segments it names
    keep_unnamed: bool = True  # R6: a sealed segment that no checkpoint names yet stays
    newest_by_place: bool = True  # R6: of two checkpoints the one further on is the newer, whenever it was stored
    closed_epochs_only: bool = True  # R6: no slot of a living epoch is ever freed
    place_before_free: bool = True  # R6: the leader's durable place moves above an epoch before the epoch is freed
    keep_longer_than_grant: bool = True  # R6: what is freed was idle for longer than a grant
    nonce_first: bool = True  # T1: the nonce is on disk before its fence is sent
    tail: Literal["own", "always", "never"] = "own"  # T2: the tail is shipped if only this directory fenced
    tail_before_place: bool = True  # T3: the tail is moved away before the durable place moves past a foreign fence
    write_own_links: bool = True  # L1: links of own epochs are written too, the directory may have gone back
    sync_before_place: bool = True  # L1: what the durable place covers was synced before


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of each thing may happen in one exploration."""

    members: int = 2
    operations: int = 2
    fences: int = 2
    crashes: int = 1  # the process ends; its directory stays
    power_losses: int = 0  # ... and what was not synced is gone
    burns: int = 0  # ... and the directory is gone
    renewals: int = 0  # a leader fences itself
    collector: bool = False
    standbys: bool = False  # members that read make checkpoints too, and each may land at any later time
    segment_links: int = 1
    restores: int = 0  # a leader's machine is set back to a snapshot
    restored_candidates: bool = False  # ... or a candidate's, taken while its fence is under way
    clocks_go_back: bool = False  # ... with both of its clocks
    forgets: int = 0  # the store loses its newest object
    forgets_silently: bool = False  # ... while the leader goes on: no lapse shows it
    clones: int = 0  # a second machine runs from the snapshot


@dataclass(frozen=True, slots=True)
class Case:
    """One exploration: rules within bounds."""

    rules: Rules = field(default_factory=Rules)
    bounds: Bounds = field(default_factory=Bounds)
