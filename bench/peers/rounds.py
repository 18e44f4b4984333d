"""The rounds of a run: each group of cells, peer by peer in turns, so that all of them meet the same weather."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.peers import machine
from bench.peers.calibration import Calibration
from bench.peers.cell import CELLS, GROUPS
from bench.peers.cells import at_once, concurrent, latency, million, tasks, throughput
from bench.peers.fleet import Fleet
from bench.peers.peer import Missing
from bench.peers.registry import Peer
from bench.peers.results import Results
from bench.peers.scale import Scale

__all__ = ["in_turn", "run", "steps_of"]

Say = Callable[[str], None]
_LOOK_S = 1.0
_PAIRED = frozenset({"produce", "claim"})


def run(peers: list[Peer], groups: frozenset[str], scale: Scale, *, home: Path, say: Say) -> Results:
    """Measure the peers in the groups of cells; a peer that fails in one is named, and the run goes on."""
    results = Results(
        date=time.strftime("%Y-%m-%d", time.gmtime()), machine=machine.facts(), scale=msgspec.to_builtins(scale)
    )
    calibration = Calibration(home)
    with Fleet() as fleet:
        present = [peer for peer in peers if peer.groups & groups and _introduce(peer, fleet, results, say)]
        try:
            for number in range(scale.rounds):
                for group in steps_of(groups, number, scale):
                    results.busy_cores.append(machine.busy_cores_at_rest(_LOOK_S, patience=scale.looks_max))
                    busy = f"{results.busy_cores[-1]:.2f} cores busy with other work"
                    say(f"round {number + 1} of {scale.rounds}: {' and '.join(sorted(group))}; {busy}")
                    _calibrate(group, calibration, scale, results)
                    for peer in in_turn(present, number):
                        if peer.groups & group:
                            _measure(peer, group, fleet, scale, results=results, say=say)
        finally:
            calibration.close()
    return results


def steps_of(groups: frozenset[str], number: int, scale: Scale) -> list[frozenset[str]]:
    """Return the groups of a round; produce and claim are one step, because what one puts the other takes."""
    if number >= scale.queued_rounds:
        groups = groups - {"million"}
    steps = [groups & _PAIRED] if groups & _PAIRED else []
    return steps + [frozenset({group}) for group in GROUPS if group in groups - _PAIRED]


def in_turn(peers: list[Peer], number: int) -> list[Peer]:
    """Return the peers in the order of a round: each round begins with another one."""
    start = number % len(peers) if peers else 0
    return peers[start:] + peers[:start]


def _introduce(peer: Peer, fleet: Fleet, results: Results, say: Say) -> bool:
    """Start the server of a peer and note its facts; return whether it can be had."""
    try:
        facts = tasks.facts(peer, fleet) if peer.groups & {"tasks"} else fleet.facts(peer)
    except Missing as missing:
        results.missing[peer.name] = f"{missing}"
        say(f"{peer.title}: missing: {missing}")
        return False
    results.peers[peer.name] = facts
    say(f"{peer.title}: {facts.version}, {facts.client}; {facts.settings}")
    return True


def _calibrate(group: frozenset[str], calibration: Calibration, scale: Scale, results: Results) -> None:
    for cell in CELLS:
        if cell.group in group:
            seconds = scale.calibration_seconds
            results.syncs_per_s.setdefault(cell.name, []).append(calibration.syncs_per_s(cell.batch, seconds))
            results.echoes_per_s.setdefault(cell.name, []).append(calibration.echoes_per_s(cell.batch, seconds))


def _measure(peer: Peer, group: frozenset[str], fleet: Fleet, scale: Scale, *, results: Results, say: Say) -> None:
    try:
        found = _figures(peer, group & peer.groups, fleet, scale)
    except Exception as error:  # each client has its own; one peer that fails must not end the run
        results.failed[f"{peer.name}, {' and '.join(sorted(group))}"] = f"{type(error).__name__}: {error}"[:300]
        say(f"  {peer.title}: FAILED: {type(error).__name__}: {error}")
        return
    results.add(peer.name, found)
    say(f"  {peer.title}: " + ", ".join(f"{cell} {value:,.4g}" for cell, value in found.items()))


def _figures(peer: Peer, group: frozenset[str], fleet: Fleet, scale: Scale) -> dict[str, float]:
    if "million" in group:
        return million.measure(peer, scale)
    port = fleet.service(peer).port
    if "tasks" in group or "idle" in group:
        return tasks.measure(peer, port, scale, group)
    if "both" in group:
        return at_once.measure(peer, port, scale)
    if "latency" in group:
        return latency.measure(peer, port, scale)
    if "concurrent" in group:
        return concurrent.measure(peer, port, scale)
    return throughput.measure(lambda name: peer.load("queue")(port, name), scale, group)
