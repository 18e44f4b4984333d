"""One installation for every page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.installed_wheel import shared


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment with the wheel in it; test processes share one."""
    base = tmp_path_factory.getbasetemp()
    return shared(base.parent / "docs" if "PYTEST_XDIST_WORKER" in os.environ else base / "docs")
