"""How far an export has come, as the buffer and the intents say it together."""

from __future__ import annotations

import pytest

from tenure.errors import Invalid
from tenure.export.intents import Intent
from tenure.export.resume import Cursor, cursor_of
from tenure.export.rows import Place
from tenure.export.settings import ExportSettings
from tenure.log.interface import Position


def at(batch: int) -> Position:
    return Position(0, 100 * batch, batch)


FIRST = Intent(0, Place(at(1)), Place(at(5)), 10)
SECOND = Intent(1, Place(at(5)), Place(at(9)), 20)


def test_a_call_that_the_buffer_holds_is_where_the_export_goes_on() -> None:
    assert cursor_of([SECOND, FIRST], ordinal=1) == Cursor(SECOND.after, ts=20)


def test_a_call_that_the_buffer_does_not_hold_yet_is_in_doubt() -> None:
    assert cursor_of([SECOND, FIRST], ordinal=0) == Cursor(SECOND.before, doubted=SECOND.after, ts=20)
    assert cursor_of([FIRST], ordinal=-1) == Cursor(FIRST.before, doubted=FIRST.after, ts=10)


def test_intents_of_an_older_copy_say_nothing() -> None:
    assert cursor_of([SECOND, FIRST], ordinal=7) is None
    assert cursor_of([SECOND, FIRST], ordinal=-1) is None
    assert cursor_of([], ordinal=-1) is None


@pytest.mark.parametrize("name", ["call_bytes_max", "call_rows_max"])
def test_a_call_larger_than_a_buffer_takes_cannot_be_asked_for(name: str) -> None:
    with pytest.raises(Invalid, match=name):
        ExportSettings(**{name: 1 << 30})
