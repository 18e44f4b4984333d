"""A member whose place in the chain was cleared away follows on in its process; a damaged store ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from unittest import mock

import pytest

from tenure.chain.catch_up import CatchUp
from tenure.chain.chain import Chain
from tenure.chain.notes import Notes
from tests.chain.members.directed import Directed, Story
from tests.chain.members.machine import Machine


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def epoch_of(machine: Machine) -> int:
    """Return the epoch that a member leads, or follows."""
    assert machine.process is not None
    return machine.process.home.info().epoch


def play(story: Story) -> Directed:
    life = Directed(1, story)
    life.play()
    return life


async def stop_the_leader(life: Directed) -> None:
    machine, epoch = life.leader, epoch_of(life.leader)
    process = machine.process
    machine.stop()
    await life.until_freed(epoch)
    machine.go_on()
    await life.until(lambda: not machine.is_leading)
    await life.until(lambda: epoch_of(machine) == epoch_of(life.leader))
    assert machine.process is process


async def stop_the_standby(life: Directed) -> None:
    machine, epoch = life.standby, epoch_of(life.standby)
    process = machine.process
    machine.stop()
    await life.until_freed(epoch)
    machine.go_on()
    await life.until(lambda: epoch_of(machine) == epoch_of(life.leader))
    assert machine.process is process
    assert not machine.is_leading


async def cut_the_leader_off(life: Directed) -> None:
    machine, epoch = life.leader, epoch_of(life.leader)
    process = machine.process
    life.store.cut_off(machine.name, "lost_request")
    await life.until_freed(epoch)
    life.store.reconnect(machine.name)
    await life.until(lambda: not machine.is_leading and epoch_of(machine) == epoch_of(life.leader))
    assert machine.process is process


@pytest.mark.parametrize("story", [stop_the_leader, cut_the_leader_off, stop_the_standby])
def test_a_member_that_was_left_behind_follows_on_in_its_process(story: Story) -> None:
    assert not any(machine.ends for machine in play(story).machines)


def test_a_leader_that_stepped_down_tries_on_while_its_disk_does_not_let_it_follow() -> None:
    failures = [OSError(28, "no space left on device")] * 3
    run = CatchUp.run

    async def fail_first(self: CatchUp, chain: Chain, notes: Notes) -> Notes:
        if failures:
            raise failures.pop()
        return await run(self, chain, notes)

    async def story(life: Directed) -> None:
        machine = life.leader
        machine.stop()
        await life.until(lambda: any(each.is_leading for each in life.machines if each is not machine))
        with mock.patch.object(CatchUp, "run", fail_first):
            machine.go_on()
            await life.until(lambda: not failures and machine.process is not None and machine.process.state is not None)
        assert not machine.ends

    play(story)


def damage_ahead(life: Directed, how: str) -> tuple[str, tuple[bytes, int]]:
    """Flip a bit of a link that the standby has not read, or delete it; return its key and what it was."""
    key = [key for key in life.store.objects if key.startswith("chain/")][-2]
    data, at_ms = was = life.store.objects[key]
    if how == "flipped":
        life.store.objects[key] = (bytes([*data[:-1], data[-1] ^ 1]), at_ms)
    else:
        life.store.lose([key])
    return key, was


@pytest.mark.parametrize("how", ["flipped", "deleted"])
def test_a_standby_ends_at_a_damaged_link_with_its_copy_whole_and_follows_once_it_is_mended(how: str) -> None:
    async def story(life: Directed) -> None:
        machine, leader = life.standby, life.leader
        before = life.store.count("put_new", "chain/", client=machine.name)
        machine.stop()
        await asyncio.sleep(0.25)
        key, was = damage_ahead(life, how)
        machine.go_on()
        while machine.anomaly is None:
            await asyncio.sleep(0.02)
        anomaly, machine.anomaly = machine.anomaly, None
        assert anomaly.kind == "false_corrupt"
        assert key in anomaly.message
        assert life.store.count("put_new", "chain/", client=machine.name) == before, "it never challenges"
        assert leader.is_leading
        life.store.objects[key] = was
        machine.kill()
        machine.start()
        await life.until(lambda: machine.process is not None and machine.process.state is not None)
        assert not any(name.startswith("checkpoint-") for name in machine.disk.listdir("diverged"))

    play(story)
