"""`Nemesis`: does to members, their networks and their store what a schedule says, one thing after the other.

The schedule comes from a seed alone; who leads when a fault comes does not. Every fault heals before the next, and then
somebody must lead and clients must be served.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

import httpx

from tests.cluster.cluster import WITHIN_S, Cluster
from tests.cluster.member import Member
from tests.kit.restartable_server import until
from tests.kit.store_proxy import CALM, Faults
from tests.soak.journal import Journal

__all__ = ["FAULTS", "NETWORK_FAULTS", "Fault", "Nemesis", "schedule"]

FAULTS: Final = {
    "kill_leader": 5,
    "kill_standby": 2,
    "kill_two": 1,
    "kill_all": 1,
    "stop_leader": 4,
    "stop_standby": 1,
    "restart_leader": 2,
    "hand_over": 3,
    "cut_leader": 3,
    "stall_leader": 2,
    "slow_leader": 1,
    "lossy_leader": 3,
    "lossy_standby": 1,
    "kill_store": 1,
    "stop_store": 1,
}
"""The faults, and how often each is drawn beside the others."""
NETWORK_FAULTS: Final = (
    *("cut_leader", "stall_leader", "slow_leader", "lossy_leader", "lossy_standby", "kill_store", "stop_store"),
)
"""Those that need a store behind a network."""
_ANSWERS: Final = 40
"""Clients are served once so many more answers were recorded."""
_LOSSY: Final = Faults(delay_ms_max=60, lose_request=0.1, lose_reply=0.2, double=0.2, late=0.1)


class Fault(NamedTuple):
    """An entry of a schedule: after ``wait_s`` of peace, ``what`` goes on for ``for_s``; ``burns`` takes a disk too."""

    what: str
    wait_s: float
    for_s: float
    burns: bool

    def __str__(self) -> str:
        return f"{self.wait_s:.2f} s, then {self.what} for {self.for_s:.2f} s{' with its disk' if self.burns else ''}"


def schedule(seed: int, *, count: int, kinds: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of a seed, drawn by their weights from all or some kinds."""
    random = Random(f"cluster nemesis {seed}")
    names = list(kinds or FAULTS)
    weights = [FAULTS[name] for name in names]
    faults = list[Fault]()
    for _ in range(count):
        what = random.choices(names, weights=weights)[0]
        for_s = math.exp(random.uniform(math.log(0.1), math.log(10.0)))  # 0.1 to 10 s, as many short as long ones
        faults.append(Fault(what, random.uniform(0.1, 1.5), for_s, random.random() < 0.5))
    return faults


class Nemesis:
    """The victims are the members of a cluster under load; ``failovers`` counts the epochs that its faults ended."""

    def __init__(self, cluster: Cluster, journal: Journal, *, seed: int) -> None:
        self._cluster, self._journal = cluster, journal
        self._random = Random(f"cluster victims {seed}")
        self.done: list[tuple[int, str]] = []
        self.met: Counter[str] = Counter()
        self.failovers = 0

    def strike(self, fault: Fault) -> None:
        """Wait, do it, heal it, and see that clients are served. Raises AssertionError where they are not."""
        time.sleep(fault.wait_s)
        leader, epoch = self._cluster.wait_for_leader()
        self._say(f"{fault} (epoch {epoch}, {leader.home.name} leads)")
        strike: Callable[[Member, Fault], None] = getattr(self, f"_{fault.what}")
        strike(leader, fault)
        self._say("healed")
        after, later = self._wait_until_served()
        self.met[fault.what] += 1
        if later > epoch:
            self.failovers += 1
        self._say(f"served by {after.home.name} in epoch {later}")

    def _say(self, what: str) -> None:
        self.done.append((self._journal.now_ms(), what))

    def _wait_until_served(self) -> tuple[Member, int]:
        goal = len(self._journal.history) + _ANSWERS
        until(lambda: len(self._journal.history) >= goal, "clients are served", within_s=WITHIN_S)
        return self._cluster.wait_for_leader()

    def _standby(self, leader: Member) -> Member:
        return self._random.choice([member for member in self._cluster.members if member is not leader] or [leader])

    # Processes

    def _kill_leader(self, leader: Member, fault: Fault) -> None:
        self._kill(leader, fault)

    def _kill_standby(self, leader: Member, fault: Fault) -> None:
        self._kill(self._standby(leader), fault)

    def _kill(self, member: Member, fault: Fault) -> None:
        member.down()
        time.sleep(min(fault.for_s, 4.0))
        self._start_again(member, fault)

    def _kill_two(self, leader: Member, fault: Fault) -> None:
        """Kill the leader, and who comes after it as soon as it leads."""
        epoch = self._cluster.wait_for_leader()[1]
        leader.down()
        successor, _ = self._cluster.wait_for_leader(epoch_min=epoch + 1)
        successor.down()
        time.sleep(min(fault.for_s, 1.0))
        self._start_again(leader, fault)
        self._start_again(successor, fault)

    def _kill_all(self, leader: Member, fault: Fault) -> None:
        """Kill everybody; where disks burn, all of them do."""
        for member in self._cluster.members:
            member.down()
        for member in self._cluster.members:
            self._start_again(member, fault)

    def _start_again(self, member: Member, fault: Fault) -> None:
        if fault.burns:
            self.met["disks burned"] += 1
            member.burn()
        member.up()

    def _restart_leader(self, leader: Member, fault: Fault) -> None:
        code = leader.down_in_order()
        assert code == 0, f"a clean stop ended with {code}:\n{leader.log()[-4_000:]}"
        leader.up()

    def _stop_leader(self, leader: Member, fault: Fault) -> None:
        self._pause(leader, fault)

    def _stop_standby(self, leader: Member, fault: Fault) -> None:
        self._pause(self._standby(leader), fault)

    def _pause(self, member: Member, fault: Fault) -> None:
        member.pause()
        time.sleep(fault.for_s)
        member.resume()

    def _hand_over(self, leader: Member, fault: Fault) -> None:
        """Ask for it once the leader knows a successor; who leads or follows closely may have changed by then."""
        leader, _ = self._cluster.wait_for_successor()
        body = {"to": self._standby(leader).url} if fault.burns else {}
        with httpx.Client(trust_env=False, verify=False, timeout=WITHIN_S) as client:
            answer = client.post(f"{leader.url}/v0/cluster/handover", json=body)
        assert answer.status_code in (200, 404, 409, 421, 503), answer.text  # 404: it started, and was not seen yet
        self.met[f"handovers answered {answer.status_code}"] += 1

    # Networks and the store

    def _cut_leader(self, leader: Member, fault: Fault) -> None:
        assert leader.proxy is not None
        leader.proxy.refuse()
        time.sleep(fault.for_s)
        leader.proxy.accept()

    def _stall_leader(self, leader: Member, fault: Fault) -> None:
        assert leader.proxy is not None
        leader.proxy.stall()
        time.sleep(fault.for_s)
        leader.proxy.resume()

    def _slow_leader(self, leader: Member, fault: Fault) -> None:
        self._disturb(leader, Faults(delay_ms_max=100 + 90 * fault.for_s), fault)

    def _lossy_leader(self, leader: Member, fault: Fault) -> None:
        self._disturb(leader, _LOSSY, fault)

    def _lossy_standby(self, leader: Member, fault: Fault) -> None:
        self._disturb(self._standby(leader), _LOSSY, fault)

    def _disturb(self, member: Member, faults: Faults, fault: Fault) -> None:
        assert member.proxy is not None
        member.proxy.faults = faults
        time.sleep(max(1.0, fault.for_s / 2))
        member.proxy.faults = CALM

    def _kill_store(self, leader: Member, fault: Fault) -> None:
        assert self._cluster.store is not None
        self._cluster.wait_for_standbys()  # a server that starts while the store is away ends, and says so
        self._cluster.store.kill()
        time.sleep(fault.for_s / 3)
        self._cluster.store.start()

    def _stop_store(self, leader: Member, fault: Fault) -> None:
        assert self._cluster.store is not None
        self._cluster.wait_for_standbys()
        self._cluster.store.pause()
        time.sleep(fault.for_s / 2)
        self._cluster.store.resume()
