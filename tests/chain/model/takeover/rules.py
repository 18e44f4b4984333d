"""The rules of taking over as switches, and the bounds of a configuration.

`Rules()` is the protocol. A broken variant is `Rules` with one field changed; a field's comment names the rule, as
`docs/design/chain-model.md` lists them. Times are counted in ticks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Bounds", "Case", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What members do. Every default is the protocol's; every other value is a fault."""

    grant_from: Literal["first sent", "reply"] = "first sent"  # G2: when the grant of a committed link begins
    fences_grant: bool = False  # G2: a fence gives no grant to its sender
    wait_for_grant: bool = True  # G3: a new leader opens a grant after it received the newest data link
    margin: bool = True  # G3: ... and longer by how much clocks may differ in their rates
    wait_from: Literal["data", "fence"] = "data"  # G4: whose newest link must be this directory's for no wait
    exempt_copies: bool = False  # G4: a copy of a directory, or one on a rebooted machine, waits too
    fresh_bootstrap: bool = True  # G5: a member that begins at a checkpoint has received it just now
    silence_from: Literal["any", "data"] = "any"  # S1: a link of any kind ends the silence
    state_opening: bool = True  # S2: silence after a fence is longer by the time that its sender needs to open
    released_newest: bool = True  # S3: only a `released` that is the newest link of all is taken over at once
    look_before_fence: bool = True  # S4: a free slot of a freed epoch is not challenged
    drop_grant_first: bool = True  # H1: the grant ends before `released` is first sent
    after_released: Literal["follows", "ships", "answers"] = "follows"  # H2: what its sender does once it is committed
    release_ships_all: bool = True  # H3: it carries everything that was written and not shipped
    tail_aside: bool = True  # D1: the unshipped tail goes aside at a foreign fence, in the same life too
    drop_state: bool = True  # D2: a fenced leader's state, which holds what never happened, is dropped


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of each thing may happen, and how many ticks each wait takes. Time itself has no bound."""

    members: int = 2
    operations: int = 1
    fences: int = 2
    beats: int = 1  # empty links beside the first of an epoch
    crashes: int = 0  # the process ends; its directory stays
    burns: int = 0  # ... and the directory is gone
    releases: int = 0
    renewals: int = 0  # a leader fences itself
    clones: int = 0  # a second machine starts from a copy of a directory
    collector: bool = False
    skips: int = 0  # ticks that one clock misses; the wait for a grant is longer by as many
    grant: int = 2
    silence: int = 2
    opening: int = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One exploration: rules within bounds."""

    rules: Rules = field(default_factory=Rules)
    bounds: Bounds = field(default_factory=Bounds)
