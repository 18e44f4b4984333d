"""Outages of a real S3 server under load, at a proxy before it: no call fails, nothing is lost, memory is bounded.

``pytest -m full -s`` on this file prints the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tenure.buffer import Consumer, open_store
from tests.kit.store_proxy import StoreProxy, store_proxy

ENDS_WITHIN_S: Final = 400
UPLINK_BYTES_PER_S: Final = 1_000_000
SCALED: Final = {
    "request_timeout_ms": 400,
    "backoff_ms_max": 200,
    "delivery_timeout_ms": 20_000,
    "inflight_bytes_max": 4_000_000,
    "call_bytes_max": 1_000_000,
    "flush_bytes": 1_000_000,
}

KINDS: Final[dict[str, tuple[Callable[[StoreProxy], None], Callable[[StoreProxy], None]]]] = {
    "503": (lambda proxy: setattr(proxy, "slows_down", True), lambda proxy: setattr(proxy, "slows_down", False)),
    "refused": (StoreProxy.refuse, StoreProxy.accept),
    "silent": (StoreProxy.stall, StoreProxy.resume),
    "slow uplink": (
        lambda proxy: setattr(proxy, "uplink_bytes_per_s", UPLINK_BYTES_PER_S),
        lambda proxy: setattr(proxy, "uplink_bytes_per_s", 0),
    ),
}
"""How each kind of outage begins and ends."""


@pytest.fixture
def proxy(s3_server: str) -> Iterator[StoreProxy]:
    port = urlsplit(s3_server.partition("endpoint=")[2]).port
    assert port is not None
    with store_proxy(port) as proxy:
        yield proxy


def bear(
    s3_server: str, proxy: StoreProxy, kind: str, *, outage_s: float, lead_s: float, rate: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Let an outage begin and end under load, and return the figures, after a comparison of what is stored."""
    name = f"outage-{kind.replace(' ', '-')}-{time.monotonic_ns()}"
    direct = s3_server.format(name=name)
    proxied = f"{direct.partition('?')[0]}?endpoint={proxy.url}"
    command = [sys.executable, "-m", "tests.buffer.outage_load", proxied, str(outage_s + 2 * lead_s), str(rate)]
    began, ended = KINDS[kind]
    with subprocess.Popen(
        [*command, json.dumps(settings)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as load:
        assert load.stdout is not None
        assert load.stdout.readline() == "started\n"
        time.sleep(lead_s)
        began(proxy)
        time.sleep(outage_s)
        ended(proxy)
        ended_s = time.monotonic()
        out, _ = load.communicate(timeout=ENDS_WITHIN_S)
    figures: dict[str, Any] = json.loads(out)
    figures["settled_s_after"] = round(time.monotonic() - ended_s, 1)
    return figures | {"direct": direct}


async def numbers_in(url: str) -> list[int]:
    """Return the numbers of the calls that are stored, in order."""
    found = list[int]()
    async with Consumer(open_store(url), group="judge", collect=False) as consumer:
        while (batch := await consumer.next_batch()) is not None:
            found += [int(entry[:12]) for entry in batch.entries if entry != b"first"]
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_a_short_outage_fails_no_call_and_loses_nothing(s3_server: str, proxy: StoreProxy, kind: str):
    """Scaled: an outage of several request timeouts, and more load than the budget holds."""
    figures = bear(s3_server, proxy, kind, outage_s=2, lead_s=0.5, rate=20_000_000, settings=SCALED)
    assert figures["failures"] == []
    assert await numbers_in(figures["direct"]) == list(range(figures["produced"]))
    assert figures["held_mib_max"] == 3, "within the budget of 4 MB, which was full"


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_outage_of_a_minute_fails_no_call_and_loses_nothing(s3_server: str, proxy: StoreProxy, kind: str):
    """Default settings, and more load than the budget holds."""
    figures = bear(s3_server, proxy, kind, outage_s=60, lead_s=5, rate=8_000_000, settings={})
    print(kind, json.dumps(figures))
    assert figures["failures"] == []
    assert await numbers_in(figures["direct"]) == list(range(figures["produced"]))
    assert figures["held_mib_max"] <= 256
    assert figures["resident_mib_grown"] <= 3 * 256, "entries, their batches as uploaded, and what a request copies"
    assert figures["threads"] < 100
