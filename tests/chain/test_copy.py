"""What it costs to write a link into the local copy, and that nothing is missed for it."""

from __future__ import annotations

import pytest

from tenure.chain.copy import DIVERGED, LocalCopy
from tenure.chain.link import Run
from tenure.chain.place import End
from tenure.log.disk import write_whole
from tenure.log.segment import HEAD_BYTES, segment_name
from tenure.testing.simdisk import SimDisk

BEGIN = Run(1, 0, b"h" * HEAD_BYTES)


def bring_in(copy: LocalCopy, run: Run) -> None:
    """Do what a standby does with each link."""
    difference = copy.first_difference([run])
    assert difference is not None
    copy.cut(difference, aside="aside")
    copy.write([run])


def test_a_link_that_follows_another_is_written_without_a_look_at_the_directory(monkeypatch: pytest.MonkeyPatch):
    disk = SimDisk()
    copy = LocalCopy(disk)
    bring_in(copy, BEGIN)
    bring_in(copy, Run(1, HEAD_BYTES, b"first"))
    monkeypatch.setattr(disk, "listdir", None)
    for number in range(10):
        bring_in(copy, Run(1, HEAD_BYTES + 5 + number, b"x"))


def test_what_came_into_a_segment_while_its_files_were_closed_goes_aside():
    disk = SimDisk()
    copy = LocalCopy(disk)
    bring_in(copy, BEGIN)
    bring_in(copy, Run(1, HEAD_BYTES, b"first"))
    copy.sync()
    file = disk.open(segment_name(1), write=True)
    write_whole(disk, file, b"never sent", offset=HEAD_BYTES + 5)
    disk.close(file)
    copy.cut(End(1, HEAD_BYTES + 5), aside="aside")
    [name] = disk.listdir(f"{DIVERGED}/aside")
    kept = disk.open(f"{DIVERGED}/aside/{name}")
    assert disk.pread(kept, 100, 0) == b"never sent"
