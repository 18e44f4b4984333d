"""The manifest's fold: pure, checked, and the same whether or not a checkpoint came between."""

from __future__ import annotations

import random

import pytest

from tenure.buffer.manifest import decide
from tenure.buffer.manifest.fold import fold, invariants
from tenure.buffer.manifest.format import (
    Append,
    Checkpointed,
    Delta,
    Drop,
    Entry,
    Epoch,
    Floor,
    Frontier,
    Genesis,
    Op,
    Retain,
    Seal,
    Skip,
    State,
    Trim,
    Void,
    checksum_of,
    decode,
    encode,
)
from tenure.buffer.manifest.keys import RisingNames, successor
from tenure.buffer.manifest.upkeep import run_of
from tenure.errors import Corrupt, TenureError


class Model:
    """A manifest that grows by random steps, each decided on its state."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.names = RisingNames()
        self.state: State | None = None
        self.ordinals: dict[str, int] = {}
        self.deltas: list[tuple[Delta, str]] = []
        self.expected: list[str] = []  # the names in the queue, by sequence
        self.commit([Genesis(4, ["default"])])

    def commit(self, ops: list[Op]) -> State:
        state = self.state
        number, prev = (0, "") if state is None else (state.number + 1, state.chain)
        delta = Delta(1, "B", number, prev, "w", f"{number}", 1_000 + number, ops)
        checksum = checksum_of(encode(delta))
        self.state = fold(state, delta, checksum)
        self.deltas.append((delta, checksum))
        invariants(self.state)
        return self.state

    def step(self) -> None:
        assert self.state is not None
        ops = self.dice.choice(
            [self.append, self.append, self.start, self.ack, self.seal, self.point, self.trim, self.void, self.retain]
        )()
        if ops:
            self.commit(ops)

    def retain(self) -> list[Op]:
        return [Retain(self.dice.randint(0, 9))]

    def append(self) -> list[Op]:
        entries = []
        for _ in range(self.dice.randint(1, 4)):
            producer = self.dice.choice("PQR")
            self.ordinals[producer] = self.ordinals.get(producer, -1) + self.dice.randint(1, 2)
            name = self.names.next(1_000 + len(self.deltas), above=self.state.void if self.state else "")
            entries.append(Entry(name, 10, 1, "00000000", producer, self.ordinals[producer], 0, len(self.deltas)))
            self.expected.append(name)
        return [Append(entries)]

    def start(self) -> list[Op] | None:
        assert self.state is not None
        group, consumer = self.dice.choice(["default", "other"]), f"c{len(self.deltas)}"
        return decide.start(self.state, group, consumer, None, groups_max=5)

    def ack(self) -> list[Op] | None:
        assert self.state is not None
        name, group = self.dice.choice(list(self.state.groups.items()))
        target = self.dice.randint(group.next_seq, self.state.next_seq)
        return decide.frontier(self.state, name, group.epoch, target)

    def seal(self) -> list[Op]:
        assert self.state is not None
        return [Seal(run_of(self.state, self.dice.randint(1, len(self.state.tail)))[0])] if self.state.tail else []

    def point(self) -> list[Op]:
        assert self.state is not None
        if self.state.checkpoint >= self.state.number:
            return []
        floor = (self.state.number + 1) // 4 * 4
        return [Checkpointed(self.state.number), Floor(floor)]

    def trim(self) -> list[Op]:
        assert self.state is not None
        needed = min(group.next_seq for group in self.state.groups.values())
        return [Trim(self.dice.randint(self.state.first_seq + 1, needed))] if needed > self.state.first_seq else []

    def void(self) -> list[Op]:
        assert self.state is not None
        oldest = self.state.oldest_name()
        below = oldest if oldest is not None else successor(self.names.next(1_000 + len(self.deltas)))
        return [Void(below, len(self.deltas))] if below > self.state.void else []


@pytest.mark.parametrize("seed", range(60))
def test_any_history_keeps_the_invariants_and_folds_the_same_from_any_checkpoint(seed: int):
    model = Model(seed)
    states = [model.state]
    for _ in range(60):
        model.step()
        if model.state is not states[-1]:
            states.append(model.state)
    assert model.state is not None
    assert [entry.name for entry in model.state.tail] == model.expected[model.state.tail_seq :]
    assert model.state.next_seq == len(model.expected)
    for at in range(0, len(states), 7):
        state = decode(State, encode(states[at]), "checkpoint")  # type: ignore[arg-type]
        for delta, checksum in model.deltas[at + 1 :]:
            state = fold(state, delta, checksum)
        assert state == model.state


def test_a_fold_leaves_the_state_before_it_alone():
    model = Model(1)
    before = model.commit(model.append())
    copy = encode(before)
    model.commit(model.append())
    model.commit(model.seal())
    assert encode(before) == copy


def entry(name: str = "5", producer: str = "P", ordinal: int = 5) -> Entry:
    return Entry(name.ljust(26, "0"), 1, 1, "00000000", producer, ordinal, 0, 0)


@pytest.mark.parametrize(
    "ops",
    [
        [Append([entry(ordinal=4)])],
        [Append([entry(ordinal=5), entry(ordinal=5)])],
        [Append([entry(name="1")])],
        [Epoch("default", 1, "c", 1)],
        [Epoch("default", 3, "c", 1)],
        [Epoch("default", 2, "c", 0)],
        [Epoch("default", 2, "c", 3)],
        [Frontier("default", 0, 2)],
        [Frontier("default", 1, 1)],
        [Frontier("default", 1, 3)],
        [Frontier("nobody", 1, 2)],
        [Skip("default", 1, 0)],
        [Skip("default", 0, 1)],
        [Drop("nobody")],
        [Seal(run_of(State(1, "B", 4, tail=[entry()], next_seq=1), 1)[0])],
        [Checkpointed(99)],
        [Floor(4)],
        [Trim(2)],
        [Trim(0)],
        [Void("1", 0)],
        [Void("9", 0)],
        [Retain(-1)],
        [Genesis(4, [])],
    ],
    ids=repr,
)
def test_what_contradicts_the_state_is_refused(ops: list[Op]):
    """Two batches (0 acknowledged under epoch 1), ordinal 4 of P committed, names below 2 void."""
    model = Model(2)
    model.commit([Append([entry("3", ordinal=3), entry("4", ordinal=4)])])
    model.commit([Epoch("default", 1, "c", 1), Void("2".ljust(26, "0"), 0)])
    before = encode(model.state)  # type: ignore[arg-type]
    with pytest.raises(Corrupt) as caught:
        model.commit(ops)
    assert caught.value.code == "manifest_invalid"
    assert encode(model.state) == before  # type: ignore[arg-type]


def test_deltas_follow_each_other_by_number_and_checksum():
    model = Model(3)
    state = model.state
    assert state is not None
    for number, prev, buffer in ((2, state.chain, "B"), (1, "00000000", "B"), (1, state.chain, "C")):
        with pytest.raises(TenureError):
            fold(state, Delta(1, buffer, number, prev, "w", "n", 0, []), "00000000")


def test_names_rise_whatever_the_clock_does():
    names = RisingNames()
    drawn = [names.next(now_ms) for now_ms in (5, 5, 4, 1_000, 0, 0)]
    drawn.append(names.next(0, above=successor(drawn[-1])))
    drawn.append(names.next(0, above="7" + "Z" * 24 + "0"))
    assert drawn == sorted(set(drawn))
