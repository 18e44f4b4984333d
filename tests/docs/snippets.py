"""The Python of a page, run as a reader would type it, and held against the output shown beneath it."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.docs.reader import SERVER, Reader
from tests.kit import redis_servers as servers
from tests.kit.doc_blocks import blocks
from tests.kit.installed_wheel import clean_environment

__all__ = ["REDIS", "run_python"]

REDIS = ("127.0.0.1:6379", "localhost:6379")

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


def run_python(page: Path, home: Path, directory: Path) -> None:
    """Run the python blocks of a page in order; what they print must be its text blocks in order.

    Where they name the usual address of a server or a Redis, a real one is behind it, on a free port.
    """
    sources = blocks(page, "python")
    with ExitStack() as stack:
        reader = Reader(home, directory)
        stack.callback(reader.close)
        if any(SERVER in source or "App()" in source for source in sources):
            reader.run("tenure serve --data served")
        if any(address in source for source in sources for address in REDIS):
            redis = stack.enter_context(servers.server())
            reader.places |= dict.fromkeys(REDIS, f"127.0.0.1:{redis.port}")
        sources = [reader.here(source) for source in sources]
        script = "\n".join(sources)
        if not _is_a_program(script):
            script = f"SOURCES = {sources!r}\n{_PROMPT}"
        done = subprocess.run(
            [home / "bin" / "python", "-W", "error", "-c", script],
            cwd=directory,
            env=clean_environment(home, TENURE_URL=reader.url),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "".join(blocks(page, "text"))


def _is_a_program(script: str) -> bool:
    """Whether it runs as it stands, and needs no prompt at which one can await."""
    try:
        compile(script, "page", "exec")
    except SyntaxError:
        return False
    return True
