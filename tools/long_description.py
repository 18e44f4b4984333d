"""The README as the description of the package: what hatchling asks for when it builds, see `pyproject.toml`.

A package page has none of the repository's files beside it. So pictures become their texts, and links into the
repository name the file instead of leading nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["LongDescription", "rendered"]

_PICTURE = re.compile(r"!\[([^\]]*)\]\((?!\w+://)[^)\s]+\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+://|#)([^)\s]+)\)")


def rendered(readme: str) -> str:
    """Return the text of a README that stands alone."""
    alone = _PICTURE.sub(lambda found: f"*Picture: {found[1]}.*", readme)
    return _LINK.sub(lambda found: f"{found[1]} (`{found[2].partition('#')[0]}` in the repository)", alone)


class LongDescription(MetadataHookInterface):
    """Sets ``readme`` to the rendered text."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": rendered(text)}
