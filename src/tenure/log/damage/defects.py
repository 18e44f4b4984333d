"""Problems of a log and the report of a survey, as verify and salvage show them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Problem", "Report"]


class Problem(NamedTuple):
    """One defect: its byte range and the batches it affects (none if ``last_batch < first_batch``)."""

    file: str
    offset: int
    end: int
    why: str
    first_batch: int = 1
    last_batch: int = 0
    #: Topic ids of the broken batches, as far as their frames can be read.
    topics: tuple[int, ...] = ()


class Report(NamedTuple):
    """The result of a survey. A torn tail is not damage: its batches were never acknowledged as durable."""

    segments: int
    #: Whole batches, and the frames in them.
    batches: int
    frames: int
    epoch: int
    problems: list[Problem]
    torn: Problem | None
