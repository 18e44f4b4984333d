"""What no test runs of the documentation: by page, the first line of a block or a command, and why."""

from __future__ import annotations

__all__ = ["NOT_RUN"]

_CI = "what continuous integration runs: see .ci/run and tests/ground/test_tree.py"
_CLUSTER = "needs a cluster; the same command is run on this machine"
_CELERY = "the other program, shown for comparison"

NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {"make run": _CI, "make test": _CI},
    "CONTRIBUTING.md": {"make test": _CI},
    "docs/start.md": {"make setup": _CI},
}
