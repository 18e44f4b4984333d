"""What a directory holds when it begins anew at a checkpoint: history is let go of, and what may be none goes aside."""

from __future__ import annotations

import pytest

from tenure.chain.copy import DIVERGED
from tenure.chain.notes import load_notes
from tenure.log.disk import write_whole
from tenure.log.segment import segment_name, segment_numbers
from tests.chain.test_space import Story
from tests.chain.test_standby_checkpoints import Copy


class Away(Copy):
    """A standby that is away for so long that its place is freed."""

    def __init__(self, story: Story) -> None:
        super().__init__(story.store, "bb")
        self.story = story
        story.write(20)
        self.follow()

    def come_back(self, *, drops: int) -> None:
        story = self.story
        for _ in range(6):
            story.write()
            for _ in range(drops):
                story.drop()
            story.save()
        assert self.notes.place.epoch in {int(key[-10:]) for key in story.store.objects if key.startswith("freed/")}
        self.follow()
        assert [bytes(body) for *_, body in story.log.replay()] == story.alive()
        assert self.notes.place == story.log.leadership.place

    @property
    def aside(self) -> dict[str, int]:
        """The files that were moved aside, with their sizes."""
        return {name: len(self.disk.content(name)) for name in self.disk.names() if name.startswith(DIVERGED)}

    @property
    def diverged_bytes(self) -> int:
        return self._catching_up.diverged_bytes

    def add(self, number: int, data: bytes, *, offset: int) -> None:
        """Write what was never part of the history."""
        file = self.disk.open(segment_name(number), write=True)
        write_whole(self.disk, file, data, offset=offset)
        self.disk.sync(file)
        self.disk.close(file)


@pytest.mark.parametrize("drops", [0, 1, 2])
def test_history_that_was_dropped_or_comes_with_the_checkpoint_is_no_divergence(drops: int):
    """Naive: whatever the checkpoint does not name goes aside, is kept for ever and raises the alert."""
    away = Away(Story())
    before = segment_numbers(away.disk)
    away.come_back(drops=drops)
    assert len(before) > 2
    assert (away.diverged_bytes, away.aside) == (0, {})


def test_a_tail_behind_the_place_that_was_noted_goes_aside_and_counts():
    away = Away(Story())
    end = away.notes.place.end
    away.add(end.segment, b"never part of the history", offset=end.offset)
    away.come_back(drops=2)
    assert list(away.aside.values()) == [25]
    assert away.diverged_bytes == 25


def test_what_was_read_after_the_last_note_is_told_from_a_tail_by_the_checkpoints_segments():
    """A standby notes its place every few seconds, and was killed between two notes."""
    away = Away(Story())
    noted, early = load_notes(away.disk), away.notes
    away.story.write(20)
    away.follow()
    assert noted == early
    away.notes = early
    away.come_back(drops=0)
    assert (away.diverged_bytes, away.aside) == (0, {})


def test_of_two_segments_behind_the_note_only_what_differs_stays_aside():
    away = Away(Story())
    early = away.notes
    away.story.write(20)
    away.follow()
    last = segment_numbers(away.disk)[-1]
    away.add(last, b"other bytes", offset=100)
    size, away.notes = len(away.disk.content(segment_name(last))), early
    away.come_back(drops=0)
    assert list(away.aside.values()) == [size]
    assert away.diverged_bytes == size
