"""The digests of every golden file: they say that none was changed.

    python -m tests.golden.digests

adds the files that are new, and changes nothing about those that are listed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

__all__ = ["FILE", "listed", "present"]

GOLDEN = Path(__file__).parent
FILE = GOLDEN / "digests.json"


def present() -> dict[str, str]:
    """The digest of each file of a golden directory, by its name."""
    files = [path for path in sorted(GOLDEN.glob("v*/**/*")) if path.is_file()]
    return {str(path.relative_to(GOLDEN)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def listed() -> dict[str, str]:
    """The digests that were written down."""
    found: dict[str, str] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(dict(sorted((present() | listed()).items())), indent=1) + "\n")
