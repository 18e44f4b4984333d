"""The page of the reference on timers is held to the code, and so is what the package carries."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

import tenure.timers
from tenure.errors import Invalid
from tenure.timers import Stats, Timer, TimerInfo, Timers, TimersSettings
from tenure.timers.scripts import SCRIPTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "timers.md").read_text()
WORDS = set(re.findall(r"\w+", PAGE))


def test_every_setting_is_listed_with_its_default():
    listed = dict(re.findall(r"^\| `(\w+)` \| (\d+) \| \S", PAGE.partition("## Settings")[2], re.MULTILINE))
    assert listed == {name: str(value) for name, value in msgspec.structs.asdict(TimersSettings()).items()}


def test_every_public_name_method_and_field_is_mentioned():
    assert [name for name in tenure.timers.__all__ if name not in WORDS] == []
    assert [name for name in vars(Timers) if not name.startswith("_") and name not in WORDS] == []
    for kind in (Timer, TimerInfo, Stats):
        assert [name for name in kind.__struct_fields__ if name not in WORDS] == []


def test_every_code_that_is_raised_is_explained():
    source = "".join(path.read_text() for path in (ROOT / "src" / "tenure" / "timers").glob("*.py"))
    raised = set(re.findall(r'code="(\w+)"|\n    \(\([\w, ]*\), r".+?", "(\w+)"', source))
    codes = {code for found in raised for code in found if code}
    assert "out_of_memory" in codes
    listed = set(re.findall(r"`(\w+)`", PAGE.partition("## Errors")[2]))
    assert codes - listed == set()


def test_every_script_is_there_and_none_besides():
    files = {path.stem for path in (ROOT / "src" / "tenure" / "timers" / "lua").glob("*.lua")}
    assert files == {*SCRIPTS, "common"}


def test_no_script_makes_up_a_key():
    for script in SCRIPTS.values():
        keys = re.findall(rb"redis\.call\('(?!TIME)\w+', (\w+)", script.text)
        assert {*keys} <= {b"DUE", b"LEASED", b"RECORD", b"STATE", b"DEAD", b"LETTER", b"OPS", b"TOPIC", b"key"}


@pytest.mark.parametrize(
    "wrong", [{"batch_max": 1_001}, {"batch_max": 0}, {"lease_ttl_ms": -1}, {"retry_for_ms": 60_000}, {"poll_ms": True}]
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, int]):
    with pytest.raises(Invalid):
        TimersSettings(**wrong)
