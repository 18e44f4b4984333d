"""What is wrong with a log, in the words that verify and salvage use."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Problem", "Report"]


class Problem(NamedTuple):
    """Something that is not as it must be: where it lies and which batches it breaks, none where last < first."""

    file: str
    offset: int
    end: int
    why: str
    first_batch: int = 1
    last_batch: int = 0
    #: Topic ids that the broken batches touched, as far as their frames still tell.
    topics: tuple[int, ...] = ()


class Report(NamedTuple):
    """What a survey found. A torn tail is no damage: nobody was told that those batches are durable."""

    segments: int
    #: Whole batches, and the frames in them.
    batches: int
    frames: int
    epoch: int
    problems: list[Problem]
    torn: Problem | None
