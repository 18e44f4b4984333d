"""The pages of the reference on buffers and stores are held to the code."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

import tenure.buffer
from tenure.buffer import BufferSettings, Collector, Consumer, Producer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "buffer.md").read_text()
STORES = (ROOT / "docs" / "reference" / "stores.md").read_text()


def test_every_setting_is_listed_with_its_default():
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| \S", PAGE.partition("## Settings")[2], re.MULTILINE))
    defaults = msgspec.structs.asdict(BufferSettings())
    assert listed == {
        name: ", ".join(value) or "none" if isinstance(value, tuple) else str(value) for name, value in defaults.items()
    }


def test_every_public_name_and_method_is_mentioned():
    words = set(re.findall(r"\w+", PAGE + STORES))
    assert [
        name for name in tenure.buffer.__all__ if name not in words | {"BufferMetrics", "ObjectInfo", "Quarantined"}
    ] == []
    for kind in (Producer, Consumer, Collector):
        assert [name for name in vars(kind) if not name.startswith("_") and name not in words | {"of"}] == []


def test_every_code_that_is_raised_is_explained():
    paths = [path for room in ("buffer", "objects") for path in (ROOT / "src" / "tenure" / room).rglob("*.py")]
    source = "".join(path.read_text() for path in paths if path.parent.name != "ingest")
    raised = set(re.findall(r'code="(\w+)"|default_code = "(\w+)"|unusable\(\s*descriptor, "(\w+)"', source))
    codes = {code for found in raised for code in found if code} - {"object_exists", "object_missing"}
    listed = set(re.findall(r"`(\w+)`", PAGE.partition("## Errors")[2] + STORES))
    assert codes - listed == set()
