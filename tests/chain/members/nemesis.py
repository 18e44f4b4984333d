"""What happens to whole members, beside what happens to the machines of a world."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, Final

from tests.chain.worlds.nemesis import DEEDS, Deed, later, release

__all__ = ["MEMBER_DEEDS"]

_CUT_S_MAX: Final = 8


def orphan(life: Any, machine: Any, random: Random) -> None:
    """Cut a leader off until another machine has ended its epoch, and end that one before it has written anything.

    The leader that comes back meets a fence with nothing behind it: only the fence says that its tail did not happen.
    """
    off_s = random.choice((1.0, 3.0))
    life.say(f"{machine.name} is cut off until its epoch is ended by one that dies for {off_s} s")
    life.store.cut_off(machine.name, random.choice(("lost_request", "refused")))
    later(life, _CUT_S_MAX, partial(life.store.reconnect, machine.name))

    def spring(other: Any) -> None:
        life.say(f"{other.name} is killed after its fence lands")
        life.store.ambushes.clear()
        other.kill()
        life.store.reconnect(machine.name)
        later(life, off_s, other.start)

    for other in life.machines:
        if other is not machine:
            life.store.ambushes[other.name] = (False, partial(spring, other))


def restart_others(life: Any, machine: Any, random: Random) -> None:
    """Cut a leader off and restart the others at once: it still has a grant, of which they have heard nothing."""
    cut_s = random.uniform(0.3, 2)
    life.say(f"{machine.name} is cut off for {cut_s:.1f} s, and the others start again")
    life.store.cut_off(machine.name, "lost_request")
    later(life, cut_s, partial(life.store.reconnect, machine.name))
    for other in life.machines:
        if other is not machine and other.is_on:
            other.kill()
            other.start()


def delay_reply(life: Any, machine: Any, random: Random) -> None:
    """Keep the reply to a leader's next link for so long that another takes over behind that link."""
    reply_s = random.uniform(1, 6)
    life.say(f"{machine.name} hears of its next link after {reply_s:.1f} s")
    life.store.reply_delays_s[machine.name] = reply_s


def to_leader(deed: Deed) -> Deed:
    """Return the deed done to the machine that leads, or not at all."""

    def do(life: Any, machine: Any, random: Random) -> None:
        for leader in [each for each in life.machines if each.is_leading][:1]:
            deed(life, leader, random)

    return do


MEMBER_DEEDS: Final[tuple[tuple[str, float, Deed], ...]] = (
    *DEEDS,
    ("orphan", 4, to_leader(orphan)),
    ("restart", 3, to_leader(restart_others)),
    ("reply", 3, to_leader(delay_reply)),
    ("release", 3, to_leader(release)),
)
