"""A request that is never answered: a takeover takes a few beats longer for it, and not as long as a request may."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenure.objects.patience import Patience
from tenure.objects.request_limits import REQUEST_TIMEOUT_MS
from tests.chain.members.directed import Directed
from tests.lives.anomaly import Anomaly

REQUESTS = 42


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Takeover(Directed):
    """The leader is killed, and of what the standby sends from then on one request gets lost, or none."""

    def __init__(self, lost: int | None, *, is_carried_out: bool) -> None:
        super().__init__(1, lambda life: self._take())
        self._lost, self._is_carried_out = lost, is_carried_out
        self.took_ms = 0
        self.what = ""

    async def _take(self) -> None:
        await self.until(lambda: len(self.shared.acked) > 3 and self.standby.process is not None)
        standby, sent = self.standby, 0
        carry_out = self.store.carry_out

        async def swallow(client: Any, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
            nonlocal sent
            if client.name == standby.name and self.took_ms == 0 and kind != "put":  # not its signs of life
                sent += 1
                if sent - 1 == self._lost:
                    self.what = f"{kind} {key}"
                    if self._is_carried_out:
                        act()
                    await asyncio.sleep(REQUEST_TIMEOUT_MS / 1000)
            await carry_out(client, kind, key, size, act)

        self.store.carry_out = swallow  # type: ignore[method-assign]
        self.leader.kill()
        began_ms = self.loop.now_ms
        await self.until(lambda: standby.is_leading)
        self.took_ms = self.loop.now_ms - began_ms


def took_over(lost: int | None, *, is_carried_out: bool = False) -> Takeover:
    life = Takeover(lost, is_carried_out=is_carried_out)
    life.play()
    assert life.what or lost is None
    return life


@pytest.mark.parametrize("is_carried_out", [False, True])
def test_a_takeover_with_one_lost_request_takes_a_few_beats_longer(is_carried_out: bool) -> None:
    """Naive: a read has the time of a request, a minute, in which the standby neither follows nor takes over."""
    calm = took_over(None)
    found = [took_over(lost, is_carried_out=is_carried_out) for lost in range(REQUESTS)]
    assert {"get", "head", "list", "put_new"} == {life.what.partition(" ")[0] for life in found}
    longest_ms = calm.took_ms + 4 * calm.setting.chain.beat_ms
    assert [(life.what, life.took_ms) for life in found if life.took_ms > longest_ms] == []


def test_without_patience_it_takes_as_long_as_a_request_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "wait_s", REQUEST_TIMEOUT_MS / 1000)
    with pytest.raises(Anomaly, match="does not come"):
        took_over(5)
