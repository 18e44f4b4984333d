"""Who leads next, and who could: the servers that live, as their signs of life say, and as they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tenure.broker.serving.loop import store_away
from tenure.chain.leadership import Leadership
from tenure.chain.signs import Seen, Signs
from tenure.contract.replies import FeatureInfo
from tenure.errors import Conflict, NotLeader, TenureError
from tenure.objects.background import background

__all__ = ["check_readers", "choose_successor"]

_LOOK_S: Final = 2.0
"""How long is looked for somebody who follows, and for the successor's answer, which takes a look at the chain."""
_ANSWER_S: Final = 7.0
"""How long for that of the version before: it writes its sign of life every `chain.hint_ms` alone."""


async def choose_successor(leadership: Leadership, signs: Signs, to: str, *, leads: Callable[[], bool]) -> str:
    """Return the address of a standby that lives now, the one at the URL ``to`` or any where that is empty.

    It answers a link that asks for its sign of life, because the last one of a server that was killed is fresh for a
    while. This server goes on to lead meanwhile; ``leads`` says whether it does. Raises Conflict where nobody answers
    that may be meant, NotLeader where the lead is lost, Overloaded where the store does not answer.
    """
    if not signs.standbys() and not await _look_now(signs):  # perhaps one was seen last when it led
        raise store_away()
    _chosen(signs.standbys(), to)
    leadership.ask()
    until_s, has_looked = _deadline_s(signs, to), False
    while True:
        if not leads() or leadership.lost is not None:
            raise NotLeader("this server does not lead any more: nothing was given away")
        if (asked := leadership.asked) is not None:
            has_looked = await _look_now(signs)
            answered = [seen for seen in signs.standbys() if (seen.hint.epoch, seen.hint.number) >= asked]
            if leads() and any(seen.hint.url == to or not to for seen in answered):
                return _chosen(answered, to)
        if asyncio.get_running_loop().time() >= until_s:
            break
        await asyncio.sleep(leadership.chain.settings.poll_ms / 1000)
    if not has_looked:
        raise store_away()
    who = to or "every server that followed"
    raise Conflict(f"{who} has stopped to answer: nothing was changed", code="no_standby")


def _deadline_s(signs: Signs, to: str) -> float:
    """Return until when an answer is waited for, by the clock of the loop."""
    meant = [seen for seen in signs.standbys() if not to or seen.hint.url == to]
    wait_s = _LOOK_S if all(seen.hint.reads is not None for seen in meant) else _ANSWER_S
    return asyncio.get_running_loop().time() + wait_s


async def check_readers(signs: Signs, features: Sequence[FeatureInfo]) -> None:
    """Raise Conflict where a server that lives could not read a log with these features: it could not take over.

    Raises Overloaded where the store does not say who lives.
    """
    if not await _look_now(signs):
        raise store_away()
    wanted = [(feature.name, feature.since) for feature in features]
    unable = {seen.hint.url: names for seen in signs.living() if (names := seen.hint.cannot_read(wanted))}
    if unable:
        who = ", ".join(f"{url} ({', '.join(names)})" for url, names in sorted(unable.items()))
        raise Conflict(
            f"servers that share this home cannot read what would be turned on, and could not take over: {who}. "
            "Upgrade them first, or stop them and wait until their signs of life are old",
            code="members_too_old",
            members=sorted(unable),
        )


async def _look_now(signs: Signs) -> bool:
    """Look at the signs of the others, and return whether the store answered; not for long, because a store that hangs
    must not keep a server from stopping.
    """
    with suppress(TimeoutError, TenureError):
        async with asyncio.timeout(_LOOK_S):
            await asyncio.wrap_future(background().start(signs.step()))
        return True
    return False


def _chosen(standbys: list[Seen], to: str) -> str:
    """Return the address of the standby that is meant. Raises Conflict where there is none."""
    urls = [seen.hint.url for seen in standbys]
    if to and to not in urls:
        raise Conflict(f"{to} does not follow this server; these do: {', '.join(urls) or 'none'}", code="no_standby")
    if not urls:
        raise Conflict("nobody follows this server closely enough to take over: start a standby", code="no_standby")
    return to or max(standbys, key=lambda seen: (seen.hint.epoch, seen.hint.number)).hint.url
