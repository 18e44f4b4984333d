"""The exporter's intents: a small file of its own beside the log."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tenure.export.intents import Intents


def test_the_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Intents(tmp_path / "intents")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "intents").stat().st_mode) == 0o600
