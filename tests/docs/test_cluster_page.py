"""The page about a second machine: its money follows from its requests, and its alerts from metrics that there are."""

from __future__ import annotations

import re

import pytest

from tests.cli.test_reference import code, page, rows
from tests.kit.doc_blocks import ROOT, blocks_of

PATH = ROOT / "docs" / "how-to" / "add-a-second-machine.md"
PAGE = PATH.read_text()
[RULES] = [block.body for block in blocks_of(PATH) if "alert:" in block.body]
ALERTS = re.findall(r"alert: (\w+)", RULES)
MINUTES = 30 * 24 * 60


def test_a_month_costs_what_its_requests_cost():
    writes_usd, reads_usd = (float(price) / 1000 for price in re.findall(r"\$([\d.]+) per 1,000", PAGE))
    counted = [row for row in rows(PAGE) if len(row) == 4 and row[1].isdigit()]
    assert len(counted) == 2
    for _, writes, reads, month in counted:
        usd = MINUTES * (int(writes) * writes_usd + int(reads) * reads_usd)
        assert month == f"${usd:.2f}"


def test_every_alert_is_about_a_metric_that_there_is():
    text = page("http-api").partition("## Metrics of a home")[2]
    known = {name for row in rows(text) for name in code(row[0])}
    used = set(re.findall(r"tenure_\w+", RULES))
    assert used
    assert used <= known


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_an_entry_that_says_where_to_look_and_what_to_do(alert: str):
    [entry] = re.findall(rf"^\*{alert}\.\*(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert "- Look: " in entry
    assert "- Do: " in entry
