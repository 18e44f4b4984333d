"""Lines of keys in TOML, in every way to write them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import Invalid
from tenure.spark.toml_lines import KeyPath, read_toml

TEXT = '''\
top = 1 # [not.a.table]
"quoted.key" = """
several
lines = 5
"""
a.b = [1,
  [2, 3], # inner
  {x = 1, y = {z = "}"}},
]
nested = [["a"], ["b"]]
[table]
key = 'x = "1"'
[table.inner]
key = 2
[[list]]
name = "first"
[[list]]
name = "second"
  [list.sub]
  deep = true
  [[list.many]]
  n = 1979-05-27T07:32:00Z
'''


def paths(value: Any, at: KeyPath = ()) -> set[KeyPath]:
    """Every path to a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ({at} if at else set()).union(*[paths(each, (*at, key)) for key, each in inside])


def test_every_key_of_a_file_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEXT)
    located = read_toml(tmp_path / "a.toml", code="bad_pipeline")
    assert located.values == tomllib.loads(TEXT)
    assert located.lines[("quoted.key",)] == 2
    assert located.lines[("a", "b")] == 6
    assert located.lines[("a", "b", 2, "y", "z")] == 8
    assert located.lines[("nested", 1)] == 10
    assert located.lines[("table", "inner", "key")] == 14
    assert located.lines[("list", 1, "name")] == 18
    assert located.lines[("list", 1, "sub", "deep")] == 20
    assert located.lines[("list", 1, "many", 0, "n")] == 22
    assert paths(located.values) - set(located.lines) == {("a",)}  # a dotted key has no line of its own


def test_a_mistake_at_a_key_that_is_not_there_points_at_the_one_around_it(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEXT)
    located = read_toml(tmp_path / "a.toml", code="bad_pipeline")
    assert located.problem(("table", "inner", "missing"), "x").line == 13
    assert located.problem(("nowhere",), "x").line is None


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"a = 1\nb = \n", 2), (b"a = [1,\n2\n", 3), (b"a = 1\nb = '\xff'\n", 2), (b"a = 1\na = 2\n", 2)],
    ids=["no-value", "no-end", "no-utf8", "twice"],
)
def test_what_is_not_toml_is_told_with_its_line(tmp_path: Path, content: bytes, line: int) -> None:
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(Invalid) as caught:
        read_toml(tmp_path / "a.toml", code="bad_pipeline")
    assert caught.value.detail["problems"][0]["line"] == line
