"""A hand-over to a server that died a moment ago changes nothing: it is asked whether it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from tenure.chain.signs import Signs
from tenure.errors import Conflict, TenureError
from tests.chain.members.directed import Directed


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Handover(Directed):
    """The lead is given away some time after a standby was killed, or with all of them alive."""

    def __init__(self, *, killed_before_s: float | None, to_it: bool = False, machine_count: int = 2) -> None:
        super().__init__(1, lambda life: self._hand_over(), machine_count=machine_count)
        self._killed_before_s, self._to_it = killed_before_s, to_it
        self.error: TenureError | None = None
        self.named = self.heir = ""
        self.took_ms = 0

    @property
    def leads(self) -> int:
        return sum(line.endswith(" leads") for line in self.story)

    async def _hand_over(self) -> None:
        leader, standby = self.leader, self.standby
        process = leader.process
        assert process is not None
        signs = process.home._view.signs
        assert signs is not None
        await self.until(lambda: len(signs.standbys()) == len(self.machines) - 1)
        self.named = standby.url
        if self._killed_before_s is not None:
            standby.kill()
            await asyncio.sleep(self._killed_before_s)
            assert standby.url in [seen.hint.url for seen in signs.standbys()], "it is taken for a living one"
        began_ms = self.loop.now_ms
        handing = asyncio.get_running_loop().create_task(
            process.home.hand_over(standby.url if self._to_it else ""), context=process.context.copy()
        )
        await asyncio.wait({handing})
        self.took_ms = self.loop.now_ms - began_ms
        self.error = handing.exception()  # type: ignore[assignment]
        if self.error is None:
            await self.until(lambda: any(each.is_leading for each in self.machines if each is not leader))
            self.heir = self.leader.url
        else:
            assert leader.is_leading
            assert process.broker is not None


def played(life: Handover) -> Handover:
    life.play()
    return life


@pytest.mark.parametrize("killed_before_s", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("to_it", [False, True])
def test_a_hand_over_to_one_that_was_killed_is_refused_and_nothing_changes(killed_before_s: float, to_it: bool) -> None:
    """Naive: its last sign of life is fresh for a while, the lead goes to it, and nobody leads for seconds."""
    life = played(Handover(killed_before_s=killed_before_s, to_it=to_it))
    assert isinstance(life.error, Conflict)
    assert life.error.code == "no_standby"
    assert life.leads == 2, "the first one, and the machine that reads the home at the end"


def test_a_hand_over_goes_to_the_one_that_answers() -> None:
    life = played(Handover(killed_before_s=0.1, machine_count=3))
    assert life.error is None
    assert life.heir != life.named


def test_a_hand_over_to_a_living_one_takes_a_beat_and_a_few_looks() -> None:
    life = played(Handover(killed_before_s=None))
    assert (life.error, life.heir) == (None, life.named)
    chain = life.setting.chain
    assert life.took_ms < chain.beat_ms + 15 * chain.poll_ms


def test_a_standby_of_the_version_before_answers_with_its_next_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Signs, "say_now", lambda self: None)
    life = played(Handover(killed_before_s=None))
    assert (life.error, life.heir) == (None, life.named)
