"""What a worker counted, scraped as Prometheus would."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenure import Invalid
from tenure.worker.observing.metrics import Stats, StatsCollector
from tenure.worker.observing.status_page import StatusPage
from tenure.worker.verdict import VerdictKind

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "watch-your-workers.md"
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from tenure.errors import Invalid
from tenure.worker.observing.metrics import Stats
from tenure.worker.observing.status_page import StatusPage
try:
    StatusPage(Stats(), None, port=0)
except Invalid as error:
    print(error.message)
"""


class Healthy:
    """Nothing is the matter."""

    def why_dead(self) -> str | None:
        return None

    def why_not_ready(self) -> str | None:
        return None


@pytest.fixture
def stats() -> Stats:
    return Stats()


@pytest.fixture
def page(stats: Stats) -> Iterator[StatusPage]:
    page = StatusPage(stats, Healthy(), port=0)
    yield page
    page.close()


def scrape(page: StatusPage) -> dict[str, dict[tuple[str, ...], float]]:
    """Every sample by its name and the values of its labels, the queue first."""
    with httpx.Client(trust_env=False, verify=False, timeout=10) as client:
        text = client.get(f"http://127.0.0.1:{page.port}/metrics").raise_for_status().text
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sorted(sample.labels.items(), key=lambda label: label[0] != "queue")
            found.setdefault(sample.name, {})[tuple(value for _, value in labels)] = sample.value
    return found


def test_a_scrape_tells_what_was_handled_by_queue_and_verdict(page: StatusPage, stats: Stats):
    mail = stats.queue("mail")
    for kind in (VerdictKind.ACK, VerdictKind.ACK, VerdictKind.NACK, VerdictKind.REJECT, None):
        mail.handled(kind, handler_ms=7)
    stats.queue("film").handled(VerdictKind.ACK, handler_ms=40_000)
    jobs = scrape(page)["tenure_worker_jobs_total"]
    assert {verdict: jobs["mail", verdict] for verdict in ("ack", "nack", "reject", "none")} == {
        "ack": 2,
        "nack": 1,
        "reject": 1,
        "none": 1,
    }
    assert jobs["film", "ack"] == 1


def test_times_are_histograms_in_seconds(page: StatusPage, stats: Stats):
    mail = stats.queue("mail")
    for ms in (0.5, 7, 7, 700, 10_000_000):
        mail.handler_ms.observe(ms)
    mail.queued_ms.observe(90_000)
    found = scrape(page)
    buckets = found["tenure_worker_handler_seconds_bucket"]
    assert buckets["mail", "0.001"] == 1
    assert buckets["mail", "0.01"] == 3
    assert buckets["mail", "1.0"] == 4
    assert buckets["mail", "+Inf"] == found["tenure_worker_handler_seconds_count"]["mail",] == 5
    assert found["tenure_worker_handler_seconds_sum"]["mail",] == pytest.approx(10_000.7145)
    assert found["tenure_worker_queue_seconds_count"]["mail",] == 1


def test_every_number_of_a_queue_is_on_the_page_and_moves(page: StatusPage, stats: Stats):
    mail = stats.queue("mail")
    counters = ("leases_lost", "heartbeats", "reconnects", "settlements", "puts", "producer_batches", "ticks")
    for count, name in enumerate((*counters, "in_flight", "prefetched"), start=1):
        setattr(mail, name, count)
    found = scrape(page)
    for count, name in enumerate(counters, start=1):
        assert found[f"tenure_worker_{name}_total"]["mail",] == count
    assert found["tenure_worker_in_flight"]["mail",] == 8
    assert found["tenure_worker_prefetched"]["mail",] == 9
    mail.in_flight = 0
    assert scrape(page)["tenure_worker_in_flight"]["mail",] == 0


def test_every_metric_is_in_the_documentation(stats: Stats):
    stats.queue("mail")
    families = {family.name for family in StatsCollector(stats).collect()}
    told = set(re.findall(r"`(tenure_worker_\w+?)(?:_total)?`", HOW_TO.read_text()))
    assert families == told


def test_the_process_itself_is_on_the_page(page: StatusPage):
    assert scrape(page)["process_resident_memory_bytes"][()] > 0


def test_a_port_that_is_taken_is_one_line_that_says_so(page: StatusPage, stats: Stats):
    with pytest.raises(Invalid, match=f"cannot listen on 127.0.0.1:{page.port}"):
        StatusPage(stats, Healthy(), port=page.port)


def test_the_page_listens_on_loopback_unless_told(page: StatusPage):
    assert page.host == "127.0.0.1"


def test_without_prometheus_it_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "pip install 'tenure[metrics]'" in done.stdout
