"""The settings that the documentation shows for a web view, and how long a call may take with them."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from tenure.client import ClientSettings, WireError
from tenure.client.calls.records import produce
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Send, Sleep, Take
from tenure.client.transport.wire import all_in_use
from tenure.errors import TenureError
from tests.kit.doc_blocks import ROOT

PAGES = ("docs/how-to/use-with-fastapi.md", "docs/how-to/use-with-django.md", "docs/reference/client.md")
PROMISED_MS = 300


def shown(page: str) -> ClientSettings:
    """The settings that a page shows."""
    (found,) = re.findall(r"^QUICK = (ClientSettings\([^)]*\))$", (ROOT / page).read_text(), re.MULTILINE)
    settings: ClientSettings = eval(found, {"ClientSettings": ClientSettings})
    return settings


def failures(settings: ClientSettings) -> dict[str, tuple[int, WireError]]:
    """The ways in which an attempt fails, each with the longest time that it takes."""
    acquired, connected = settings.acquire_ms, settings.acquire_ms + settings.connect_ms
    return {
        "nobody listens": (0, WireError("refused", sent=False)),
        "every connection is in use": (acquired, all_in_use("connections_max")),
        "packets get lost": (connected, WireError("no connection", sent=False)),
        "the server hangs": (connected + settings.answer_ms, WireError("no answer", sent=True)),
    }


def failed_after_ms(settings: ClientSettings, attempts: tuple[str, ...], *, several: bool) -> float:
    """How long a put takes until it fails, where its attempts do so in this order and then as the last one."""
    now_ms = 0.0
    session = Session(settings=settings, now_s=lambda: now_ms / 1000, chance=lambda: 1.0, has_several=lambda: several)
    plan, ways, coming = produce(session, "t", [1]), failures(settings), list(attempts)
    step: Any = next(plan)
    try:
        while True:
            match step:
                case Take():
                    now_ms += settings.acquire_ms
                    step = plan.send(session.lanes.take(lambda lane: True))
                case Sleep():
                    now_ms += step.seconds * 1000
                    step = plan.send(None)
                case Send():
                    took_ms, error = ways[coming.pop(0) if len(coming) > 1 else coming[0]]
                    now_ms += took_ms
                    step = plan.throw(error)
    except TenureError:
        return now_ms


def test_every_page_shows_the_same_settings() -> None:
    assert len({repr(shown(page)) for page in PAGES}) == 1
    assert all(f"{PROMISED_MS} ms" in (ROOT / page).read_text() for page in PAGES)


@pytest.mark.parametrize("several", [False, True])
def test_a_put_of_a_web_view_fails_within_the_time_that_is_promised(several: bool) -> None:
    settings = shown(PAGES[0])
    took = {
        attempts: failed_after_ms(settings, attempts, several=several)
        for attempts in product(failures(settings), repeat=3)
    }
    worst = max(took, key=lambda attempts: took[attempts])
    assert took[worst] <= PROMISED_MS, worst
    defaults = failed_after_ms(ClientSettings(), ("nobody listens",), several=several)
    assert defaults > 10 * PROMISED_MS, "what they are for"
