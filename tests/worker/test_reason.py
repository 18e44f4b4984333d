"""Why a job failed, in at most a KiB, with the place in the user's code."""

from __future__ import annotations

import json

import pytest

from tenure.worker.observing.reason import REASON_BYTES_MAX, bounded, reason_of


def caught(raising: object) -> BaseException:
    try:
        raising()  # type: ignore[operator]
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def send_mail() -> None:
    raise ValueError("no such address")


def test_a_reason_has_the_type_the_message_and_the_place():
    line = send_mail.__code__.co_firstlineno + 1
    assert reason_of(caught(send_mail)) == f"ValueError: no such address (test_reason.py:{line} in send_mail)"


def test_the_place_is_the_innermost_frame_of_the_user_not_of_a_library():
    def parse() -> None:
        json.loads("{")

    reason = reason_of(caught(parse))
    assert reason.startswith("JSONDecodeError: ")
    assert reason.endswith(f"(test_reason.py:{parse.__code__.co_firstlineno + 1} in parse)")


def test_an_error_without_a_message_or_a_traceback_is_its_type():
    assert reason_of(KeyError()) == "KeyError"


@pytest.mark.parametrize("message", ["x" * 5_000, "é" * 5_000, "🚀" * 5_000, "\ud800" * 2_000])
def test_a_reason_is_bounded_in_bytes_and_keeps_its_place(message: str):
    def fail() -> None:
        raise RuntimeError(message)

    reason = reason_of(caught(fail))
    assert REASON_BYTES_MAX - 8 <= len(reason.encode()) <= REASON_BYTES_MAX
    assert reason.endswith("in fail)")
    assert "…" in reason


def test_an_error_that_cannot_be_shown_does_no_harm():
    class Awkward(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert reason_of(Awkward()) == "Awkward: <no message: its __str__ failed>"


def test_a_lone_surrogate_is_escaped_because_the_wire_takes_utf8_only():
    assert bounded("a\ud800b") == "a\\ud800b"
