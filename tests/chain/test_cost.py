"""The page about homes counts the requests that are really made, and its money follows from the prices it states."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tenure.chain.hint import Hint, write_hint
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.objects.background import background
from tenure.testing import ManualClock
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import SimStore
from tests.chain.kit import open_log
from tests.cli.test_reference import rows
from tests.kit.doc_blocks import ROOT

PAGE = (ROOT / "docs" / "how-to" / "keep-the-log-in-a-bucket.md").read_text()
MONTH_S = 30 * 86_400
WRITES = ("put", "put_new", "list", "copy")
READS = ("get", "head")
COUNTED = {
    what: (int(writes), int(reads))
    for what, writes, reads in (row for row in rows(PAGE) if len(row) == 3 and row[1].isdigit())
}


class Counting:
    """A home, and the requests since the last look, as (writes, reads)."""

    def __init__(self) -> None:
        self.store, self.clock = SimStore(), ManualClock()
        self._seen = 0

    def open(self, disk: SimDisk) -> ShippedLog:
        log = open_log(self.store, disk, clock=self.clock)
        for _ in log.replay():
            pass
        return log

    def look(self) -> tuple[int, int]:
        kinds = Counter(call.kind for call in self.store.calls[self._seen :])
        self._seen = len(self.store.calls)
        return sum(kinds[kind] for kind in WRITES), sum(kinds[kind] for kind in READS)


def ship(log: ShippedLog) -> None:
    log.append([(20, 1, b"body")])
    log.sync()


def prices() -> tuple[float, float]:
    """The price of one write and of one read, as the page states them."""
    writes, reads = re.findall(r"\$([\d.]+) per 1,000", PAGE)
    return float(writes) / 1000, float(reads) / 1000


def test_a_link_is_one_request_and_four_after_a_pause():
    home = Counting()
    log = home.open(SimDisk())
    home.look()
    ship(log)
    assert home.look() == COUNTED["a link"]
    home.clock.advance(log.leadership.chain.settings.lapse_ms + 1)
    ship(log)
    assert home.look() == COUNTED["a link after a second and a half without one"]


def test_an_idle_minute_costs_its_hints_and_its_looks():
    home, settings = Counting(), ChainSettings()
    log = home.open(SimDisk())
    ship(log)
    home.look()
    background().run(write_hint(log.leadership.chain.store, "nonce", Hint(url="", epoch=1, count=1)))
    hint = home.look()
    background().run(log.leadership.prove())
    proof = home.look()
    hints, proofs = 60_000 // settings.hint_ms, 60_000 // settings.prove_ms
    idle = (hints * hint[0] + proofs * proof[0], hints * hint[1] + proofs * proof[1])
    assert idle == COUNTED["an idle minute"]
    write, read = prices()
    [month] = re.findall(r"An idle server costs \$([\d.]+) a month", PAGE)
    assert float(month) == pytest.approx(MONTH_S / 60 * (idle[0] * write + idle[1] * read), abs=0.005)


def test_a_start_takes_no_more_requests_than_the_page_says():
    home, disk = Counting(), SimDisk()
    log = home.open(disk)
    first = home.look()
    for _ in range(100):
        ship(log)
    log.close()
    home.look()
    home.open(disk)
    again = home.look()
    for taken, row in ((first, "the first start, at most"), (again, "a start on the same directory, at most")):
        assert taken[0] <= COUNTED[row][0]
        assert taken[1] <= COUNTED[row][1]


def test_the_table_of_months_follows_from_the_prices():
    write, _ = prices()
    table = [row for row in rows(PAGE) if row[0].endswith(" ms")]
    assert len(table) == 4
    for took, links, month, slow, fast in table:
        per_s = 1000 / float(took.removesuffix(" ms"))
        assert float(links) == pytest.approx(per_s, abs=0.05)
        assert float(month.strip("$")) == pytest.approx(MONTH_S * per_s * write, abs=0.005)
        for cell, rate in ((slow, 1_000), (fast, 100_000)):
            assert float(cell.strip("$")) == pytest.approx(1e6 / rate * per_s * write, abs=0.00005)
