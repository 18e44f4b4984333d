"""What happens to the machines of a world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from tenure.testing.power_loss import MODES
from tests.chain.worlds.machine import Machine

if TYPE_CHECKING:
    from tests.chain.worlds.world import World

__all__ = ["DEEDS", "LATER_TRAITS", "TRAITS", "Deed", "later", "release", "strike"]

Deed = Callable[["World", Machine, Random], None]
_MACHINES_MAX = 4


def strike(world: World, random: Random, deeds: Sequence[tuple[str, float, Deed]] | None = None) -> None:
    """Do one thing to one machine, more often to one that leads."""
    machines = [machine for machine in world.machines if machine.is_on]
    if not machines:
        return
    machine = random.choices(machines, [4 if each.is_leading else 1 for each in machines])[0]
    chosen = [(weight, deed) for trait, weight, deed in deeds or DEEDS if not trait or trait in world.traits]
    [deed] = random.choices([deed for _, deed in chosen], [weight for weight, _ in chosen])
    deed(world, machine, random)


def pause(world: World, machine: Machine, random: Random) -> None:
    """Stop the process for a while; perhaps its clocks stand still, as those of a suspended machine do."""
    ms = int(random.choice((200, 900, 3_000, 12_000)) * random.uniform(0.5, 1))
    stands_still = "frozen" in world.traits and random.random() < 0.5
    world.say(f"{machine.name} is stopped for {ms} ms{', with its clocks' if stands_still else ''}")
    machine.stop()

    def go_on() -> None:
        if stands_still:
            machine.clock.boot_behind_ms += ms
            machine.clock.wall_behind_ms += ms
        machine.go_on()

    later(world, ms / 1000, go_on)


def kill(world: World, machine: Machine, random: Random) -> None:
    """End the process, and start it again after a while."""
    kind = random.choice(("kill", "kill", "power", "disk"))
    mode = random.choice(MODES) if kind == "power" else None
    off_s = random.choice((0.0, 0.5, 3.0, 6.0))
    world.say(f"{machine.name} is killed ({mode or kind}) for {off_s} s")
    machine.kill(mode, loses_disk=kind == "disk")
    later(world, off_s, machine.start)


def ambush(world: World, machine: Machine, random: Random) -> None:
    """End the process at its next link or fence, right before or after it lands; perhaps end it now, too."""
    is_before = random.random() < 0.5

    def spring() -> None:
        world.say(f"{machine.name} is killed {'before' if is_before else 'after'} its link lands")
        machine.kill()
        later(world, 0, machine.start)

    world.store.ambushes[machine.name] = (is_before, spring)
    if random.random() < 0.5:
        world.say(f"{machine.name} is killed")
        machine.kill()
        machine.start()


def shadow(world: World, machine: Machine, random: Random) -> None:
    """Stop a leader until another machine sends its fence, which takes so long that the leader has gone on by then."""
    ms = random.randint(900, 2_500)
    world.say(f"{machine.name} is stopped for {ms} ms, and the fences of others are slow")
    machine.stop()
    later(world, ms / 1000, machine.go_on)
    for other in world.machines:
        if other is not machine:
            world.store.delays_s[other.name] = random.uniform(2, 9)


def cut_off(world: World, machine: Machine, random: Random) -> None:
    """Cut a machine off from the store."""
    s = random.uniform(0.2, 8)
    world.say(f"{machine.name} is cut off for {s:.1f} s")
    world.store.cut_off(machine.name, random.choice(("lost_request", "lost_request", "lost_reply", "refused")))
    later(world, s, lambda: world.store.reconnect(machine.name))


def go_away(world: World, machine: Machine, random: Random) -> None:
    """Have the store refuse everything."""
    s = random.uniform(0.2, 4)
    world.say(f"the store is away for {s:.1f} s")
    world.store.is_away = True

    def come_back() -> None:
        world.store.is_away = False

    later(world, s, come_back)


def release(world: World, machine: Machine, random: Random) -> None:
    """Have the process end in good order."""
    world.say(f"{machine.name} is to end in good order")
    if machine.process is not None:
        machine.process.wants_release = True


def set_back(world: World, machine: Machine, random: Random) -> None:
    """Put a machine that led once back to an earlier moment, with its memory or with its directory alone."""
    candidates = [each for each in world.machines if each.memories]
    if candidates:
        machine = random.choice(candidates)
        memory = random.choice((machine.memories[-1], random.choice(machine.memories)))
        has_memory = random.random() < 0.75
        world.say(f"the {'memory' if has_memory else 'directory'} of {machine.name} is set back to {memory.at_ms} ms")
        if has_memory:
            # Where links are freed, one of the clocks must be right: nothing is promised otherwise.
            machine.set_back(memory, wall_too="collect" not in world.traits and random.random() < 0.5)
        else:
            machine.set_disk_back(memory)


def join(world: World, machine: Machine, random: Random) -> None:
    """Start one more machine, with an empty disk, while the others live."""
    if len(world.machines) < _MACHINES_MAX:
        world.add_machine().start()


def set_clock(world: World, machine: Machine, random: Random) -> None:
    """Set the wall clock of a machine."""
    machine.clock.wall_behind_ms += random.choice((-86_400_000, -2_000, 2_000, 86_400_000))
    world.say(f"the wall clock of {machine.name} is set")


def later(world: World, s: float, act: Callable[[], None]) -> None:
    """Do something after a while, unless every fault has ended by then."""
    asyncio.get_running_loop().call_later(s, lambda: None if world.is_healed else act())


DEEDS: tuple[tuple[str, float, Deed], ...] = (
    ("", 3, pause),
    ("", 2, kill),
    ("", 2, ambush),
    ("ambush", 5, ambush),
    ("", 1.5, cut_off),
    ("shadow", 1.5, shadow),
    ("away", 0.7, go_away),
    ("release", 1, release),
    ("memory", 3, set_back),
    ("join", 0.5, join),
    ("clock", 1, set_clock),
)
TRAITS = (
    "frozen",
    "away",
    "shadow",
    "release",
    "memory",
    "join",
    "clock",
    "collect",
    "slow",
    "lossy",
    "late",
    "long",
    "ambush",
)
#: Those that came later are drawn by themselves, so that a seed goes on to stand for the same world otherwise.
LATER_TRAITS = ("parts", "swallow")
