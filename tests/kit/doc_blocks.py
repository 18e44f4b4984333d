"""The fenced blocks of the documentation, with their language and their place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DATA", "ROOT", "SHELLS", "Block", "blocks", "blocks_of", "commands_of", "named", "pages"]

ROOT = Path(__file__).parents[2]
SHELLS: Final = ("console", "bash", "sh")
DATA: Final = ("toml", "json", "ini", "sql")
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
# A block that the sentence before it, or its own first line, gives a file's name.
_FILE_BEFORE = re.compile(r"`([\w/]+\.(?:py|toml))`[^`\n]*:\s*$")
_FILE_WITHIN = re.compile(r"\A# ([\w/]+\.py)\n")


class Block(NamedTuple):
    """One block, and the name of the file that its page tells the reader to save it as."""

    language: str
    body: str
    file: str | None
    line: int


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]


def named(page: Path) -> str:
    """A page by its path in the repository."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """Every block of a page, in order."""
    text, found = page.read_text(), []
    for match in _FENCE.finditer(text):
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
        file = _FILE_BEFORE.search(text[: match.start()].rstrip()[-200:]) or _FILE_WITHIN.search(body)
        found.append(Block(match["language"], body, file and file[1], text.count("\n", 0, match.start()) + 1))
    return found


def blocks(page: Path, language: str) -> list[str]:
    """The bodies of a page's blocks in that language."""
    return [block.body for block in blocks_of(page) if block.language == language]


def commands_of(block: Block) -> list[str]:
    """The commands of a shell's block: lines, joined where one ends in a backslash; with ``$`` prompts, what follows a
    prompt. A loop is one command.
    """
    lines = re.sub(r"\s*\\\n\s*", " ", block.body).splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    if any(line.startswith("while ") for line in lines):
        return [block.body]
    return [line for line in lines if line.strip()]
