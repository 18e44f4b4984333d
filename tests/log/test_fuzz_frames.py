"""Ten seconds of damaged logs, in the default run."""

from __future__ import annotations

from tests.log.fuzz_frames import fuzz


def test_a_damaged_log_opens_with_a_prefix_of_what_was_written_or_is_called_corrupt():
    assert fuzz(seconds=10) > 100
