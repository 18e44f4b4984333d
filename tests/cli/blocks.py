"""The code in the documentation, run as a reader would run it, and held against the output shown beneath it."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.acceptance.http.serving import Serving
from tests.timers import servers

__all__ = ["ROOT", "blocks", "pages", "run_page"]

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# As at the prompt of `python -m asyncio`: one loop for the whole page, and await everywhere.
_PROMPT = """
import ast, asyncio, sys
async def main():
    for number, source in enumerate(SOURCES):
        code = compile(source, f"block {number + 1}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if result is not None:
            await result
names = {"__name__": "__main__"}
asyncio.run(main())
"""


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a page in that language."""
    return [body for found, body in _FENCE.findall(page.read_text()) if found == language]


_SERVER = "127.0.0.1:4000"
_REDIS = "127.0.0.1:6379"


def run_page(page: Path, directory: Path) -> None:
    """Run the python blocks of a page in order; what they print must be its text blocks in order.

    Where they name the usual address of a server, a real one is behind it, on a free port.
    """
    sources = blocks(page, "python")
    with ExitStack() as stack:
        if any(_SERVER in source for source in sources):
            serving = Serving(directory / "served").start()
            stack.callback(serving.close)
            sources = [source.replace(_SERVER, serving.address.removeprefix("http://")) for source in sources]
        if any(_REDIS in source for source in sources):
            redis = stack.enter_context(servers.server())
            sources = [source.replace(_REDIS, f"127.0.0.1:{redis.port}") for source in sources]
        _run(page, sources, directory)


def _run(page: Path, sources: list[str], directory: Path) -> None:
    if any("asyncio.run(" in source for source in sources):
        script = "\n".join(sources)
    else:
        script = f"SOURCES = {sources!r}\n{_PROMPT}"
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(blocks(page, "text"))
