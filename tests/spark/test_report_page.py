"""The page and what it says, without Spark: hostile text stays text, and what is wrong stands at the top."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from tenure.spark.report.buckets import DELIVERIES, DURATIONS_MS, POINTS_MAX, deliveries_label, step_ms_for
from tenure.spark.report.model import DeadLetters, Figures, Gap, Latency, Point, Poison, QueueRow, Returns, Worker
from tenure.spark.report.page import plot
from tenure.spark.report.page.findings import findings
from tenure.spark.report.page.page import page
from tenure.spark.report.page.units import amount, duration, share, shorten

HOSTILE = "</style><script>alert('x')</script><img src=x onerror=alert(1)>\"'&\u202e\x1b[31m"
T = 1_700_000_000_000


def queue(name: str | None, **changes: int | float | None) -> QueueRow:
    """A queue with which all is well."""
    row = QueueRow(
        queue=name,
        produced=1_000,
        moved_in=0,
        claimed=1_000,
        extended=0,
        released=0,
        returned=0,
        expired=0,
        lost=0,
        acked=1_000,
        dead_lettered=0,
        redriven=0,
        rows=3_000,
        first_ms=T,
        last_ms=T + 600_000,
        lives=1_000,
        done=1_000,
        dead=0,
        moved=0,
        held=0,
        waiting=0,
        begun_before=0,
        delivered_again=0,
        workers=3,
        jain_acked=0.99,
        jain_held=0.99,
    )
    return msgspec.structs.replace(row, **changes)


def figures(**changes: object) -> Figures:
    """A report in which nothing stands out."""
    made = Figures(
        source="file:///events",
        made_ms=T,
        step_ms=5_000,
        malformed=0,
        all=queue(None),
        open_jobs=0,
        queues=[queue("mail")],
        queues_count=1,
        idle=[],
        idle_count=0,
        points=[point(None, T), point(None, T + 15_000), point("mail", T)],
        latency=[latency("wait", 40), latency("processing", 90)],
        classes=[],
        deliveries=[],
        returns=[],
        returns_count=0,
        poison=[],
        workers=[worker("ann", 500), worker("bob", 500)],
        workers_count=2,
        dead_letters=[],
        dead_letters_count=0,
        gaps=[],
        gaps_count=0,
    )
    return msgspec.structs.replace(made, **changes)


def point(name: str | None, start_ms: int) -> Point:
    kinds = ("claimed", "extended", "released", "returned", "expired", "lost", "acked", "dead_lettered", "redriven")
    counts = dict.fromkeys(kinds, 5)
    return Point(queue=name, start_ms=start_ms, step_ms=5_000, produced=7, moved_in=1, **counts)


def latency(measure: str, p90_ms: int, name: str | None = None) -> Latency:
    return Latency(queue=name, measure=measure, jobs=9, p50_ms=1, p90_ms=p90_ms, p99_ms=p90_ms, max_ms=p90_ms, sum_ms=1)


def worker(name: str, acked: int) -> Worker:
    return Worker(
        queue=None, node=name, claimed=acked, acked=acked, released=0, returned=0, expired=0, lost=0, held_ms=5
    )


def hostile() -> Figures:
    """Every text that comes from outside is an attack."""
    return figures(
        source=HOSTILE,
        only=(HOSTILE,),
        queues=[queue(HOSTILE)],
        idle=[queue(HOSTILE, claimed=0)],
        idle_count=1,
        all=queue(None, released=400, expired=300, dead_lettered=50, jain_acked=0.1),
        returns=[Returns(queue=HOSTILE, how="released", reason=HOSTILE, returned=3, redelivered=1, lost_ms=7)],
        returns_count=1,
        poison=[
            Poison(queue=HOSTILE, seq=1, life=1, deliveries=9, outcome="dead", reason=HOSTILE, last_ms=T, log=0),
        ],
        workers=[worker(HOSTILE, 9), worker("bob", 0)],
        dead_letters=[DeadLetters(queue=HOSTILE, reason=HOSTILE, dest=HOSTILE, jobs=5)],
        dead_letters_count=1,
        gaps=[Gap(queue=HOSTILE, reason=HOSTILE, at_ms=T, first_batch=1, last_batch=2)],
        gaps_count=1,
    )


class Tags(HTMLParser):
    """The elements of a page, their attributes, and whether they are closed as they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_hostile_names_and_reasons_stay_text_on_the_page() -> None:
    """Fault 50: a producer, or a worker that gives a job back, writes what an operator later opens in a browser."""
    text = page(hostile())
    tags = Tags(text)
    assert not tags.open
    assert not tags.names & {"script", "img", "iframe", "link", "object", "base", "form"}
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "style")}
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text
    assert text.count("</style>") == 1


def test_the_page_asks_for_nothing_and_forbids_scripts() -> None:
    text = page(figures())
    assert "default-src 'none'" in text
    assert not re.search(r"(?:https?:)?//[a-z]|@import|url\(", text.replace("file:///events", ""))


def test_every_finding_points_at_a_section_that_is_there() -> None:
    text = page(hostile())
    for anchor in set(re.findall(r'href="#([a-z]+)"', text)):
        assert f'id="{anchor}"' in text, anchor


def test_nothing_stands_out_where_all_is_well() -> None:
    assert [each.level for each in findings(figures())] == ["good"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"all": queue(None, expired=100)}, "10 % of all deliveries ended without an ack"),
        ({"all": queue(None, lost=100)}, "Workers were lost: the log of their supervisor says how each ended"),
        ({"all": queue(None, dead_lettered=20)}, "20 jobs ended as dead letters (2 % of the number produced)"),
        ({"queues": [queue("mail", waiting=400)]}, "400 jobs of “mail” still open at the end (40 %"),
        (
            {"latency": [latency("wait", 60_000, "mail"), latency("processing", 900, "mail")]},
            "Jobs of “mail” wait much longer than they are worked at: one in ten waited 1 min",
        ),
        ({"all": queue(None, jain_acked=0.4)}, "spread unevenly over 3 workers"),
        ({"idle": [queue("journal", claimed=0)], "idle_count": 1}, "Nothing was claimed from “journal”"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(changes: dict[str, object], words: str) -> None:
    assert any(words in each.sentence for each in findings(figures(**changes)))


def test_an_incomplete_report_says_so_first() -> None:
    text = page(figures(gaps_count=2, gaps=[Gap(queue=None, reason="trimmed", at_ms=T, first_batch=1, last_batch=2)]))
    assert "The report is incomplete: 2 gaps" in text[: text.index('class="tiles"')]


def test_no_time_is_cut_into_more_points_than_a_plot_has() -> None:
    for first in (0, 999, T + 1):
        for long in (0, 1, 60_000, 119_999, 3_600_000, 86_400_000, 10**11, 2 * 10**14):
            step = step_ms_for(first, first + long)
            assert (first + long) // step - first // step < POINTS_MAX
    assert step_ms_for(T, T + 100_000) == 1_000, "and into no fewer than it could have"


def test_classes_follow_each_other_without_a_gap() -> None:
    assert list(DURATIONS_MS) == sorted(set(DURATIONS_MS))
    assert [deliveries_label(low) for low in DELIVERIES[4:8]] == ["4", "5", "6–10", "11–20"]
    assert deliveries_label(DELIVERIES[-1]) == "over 100"


def test_numbers_are_short_and_have_their_units() -> None:
    assert [amount(number) for number in (0, 9_999, 12_345, 4_100_000)] == ["0", "9,999", "12.3 k", "4.1 M"]
    assert [duration(ms) for ms in (7, 1_400, 60_000, 9_000_000, None)] == ["7 ms", "1.4 s", "1 min", "2.5 h", "–"]
    assert [share(part, 100_000) for part in (0, 1, 9_500, 99_999)] == ["0 %", "< 0.1 %", "9.5 %", "> 99.9 %"]
    assert shorten("a" * 99, 10) == "aaaaaaaaa…"


def test_plots_of_nothing_and_of_one_point_are_drawn() -> None:
    for values in ([], [0], [3]):
        drawn = plot.lines([plot.Series("a", "acked", values, filled=True)], ["now"] * len(values), unit="jobs")
        assert "nan" not in drawn
        assert "<svg" in drawn
        assert "<svg" in plot.histogram(values, ["x"] * len(values), colour="acked", unit="jobs")
    assert "<dl" in plot.bars([])


def test_a_report_on_some_queues_says_at_its_head_which() -> None:
    head = page(figures(only=("mail", "thumbnails"))).partition("</header>")[0]
    assert ". Only mail, thumbnails</p>" in head
    many = page(figures(only=tuple(f"queue-{number}" for number in range(12)))).partition("</header>")[0]
    assert "queue-9 and 2 more" in many
    assert "Only" not in page(figures()).partition("</header>")[0]
