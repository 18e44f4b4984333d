"""Settings refuse numbers that cannot be meant, all with the same words."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tenure.buffer import BufferSettings, IngestSettings
from tenure.client import ClientSettings
from tenure.errors import Invalid
from tenure.limits import check_limits
from tenure.spark import Limits, ReaderSettings
from tenure.timers import TimersSettings
from tenure.worker import WorkerSettings

SRC = Path(__file__).parents[2] / "src" / "tenure"


class Example(msgspec.Struct, frozen=True, kw_only=True):
    count_max: int = 1
    wait_ms: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        check_limits(self, zero={"wait_ms"}, most={"count_max": 1_000})


def test_sound_settings_are_taken():
    assert Example(count_max=1_000, wait_ms=0, name="x").count_max == 1_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count_max": 0}, "count_max must be a whole number, 1 or more; got 0"),
        ({"count_max": True}, "count_max must be a whole number, 1 or more; got True"),
        ({"count_max": "7"}, "count_max must be a whole number, 1 or more; got '7'"),
        ({"wait_ms": -1}, "wait_ms must be a whole number, 0 or more; got -1"),
        ({"count_max": 1_001}, "count_max must be at most 1,000; got 1,001"),
    ],
)
def test_number_that_cannot_be_meant_is_refused_by_its_name(given: dict[str, int], message: str):
    with pytest.raises(Invalid) as caught:
        Example(**given)  # type: ignore[arg-type]
    assert (caught.value.message, caught.value.detail["field"]) == (message, next(iter(given)))


@pytest.mark.parametrize(
    "kind", [BufferSettings, IngestSettings, ClientSettings, Limits, ReaderSettings, TimersSettings, WorkerSettings]
)
def test_settings_of_every_room_refuse_a_number_below_zero(kind: type):
    name = next(field.name for field in msgspec.structs.fields(kind) if field.type is int)
    with pytest.raises(Invalid, match=rf"^{name} must be a whole number, [01] or more; got -1$"):
        kind(**{name: -1})


def test_a_mebibyte_is_defined_once():
    defining = re.compile(r"^_?[KM]IB\b.*= *1", re.MULTILINE)
    assert [path.name for path in SRC.rglob("*.py") if defining.search(path.read_text())] == ["limits.py"]
