"""A driver in a process of its own, for a session that cannot be in this one: what it prints last is JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["driven"]

ROOT = Path(__file__).parents[2]


def driven(module: str, *arguments: object, within_s: float) -> Any:
    """What ``tests.spark.<module>`` found."""
    command = [sys.executable, "-m", f"tests.spark.{module}", *map(str, arguments)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=within_s, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])
