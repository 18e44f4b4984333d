"""Every command of the documentation runs, from the wheel in a fresh environment; what does not is listed with why."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from configparser import ConfigParser
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.docs.not_run import NOT_RUN
from tests.docs.reader import SERVER, Reader
from tests.docs.snippets import REDIS
from tests.docs.spark_steps import SPARK_PAGES, runs_spark
from tests.kit import redis_servers as servers
from tests.kit.doc_blocks import DATA, SHELLS, Block, blocks_of, commands_of, named, pages

PAGES = pages()
PARSED: dict[str, Callable[[str], object]] = {
    "toml": tomllib.loads,
    "json": json.loads,
    "ini": lambda text: ConfigParser().read_string(text),
}

# Commands whose right answer on a page's own data is another exit code than 0.
CODES = {
    "docs/how-to/run-a-job-queue-end-to-end.md": {"tenure dead redrive emails": 4},  # nothing has died
    "docs/how-to/handle-dead-letters.md": {'tenure dead drop images --match "old-*"': 4},
}


def _worker_app(reader: Reader) -> None:
    """The worker of the README, which other pages run too."""
    [block] = [block for block in blocks_of(PAGES[0]) if block.file == "mail.py"]
    reader.save(block)


def _some_events(reader: Reader) -> None:
    """A job's life in the log of the server that the page starts."""
    reader.run("tenure serve --data /var/lib/tenure")
    reader.run("tenure put mail 1 2 3")
    reader.run("tenure claim mail --max 2")
    reader.run("tenure export --data /var/lib/tenure --events file:///var/lib/tenure-events --once")


def _a_dead_letter(reader: Reader) -> None:
    reader.run("tenure serve --data served")
    topic = {"type": "queue", "dead_letter": "images.dead"}
    reader.run(
        f"curl -sSf -X PUT {reader.url}/v0/topics/images -H 'content-type: application/json' -d '{json.dumps(topic)}'"
    )
    reader.run("""tenure put images '"a.png"' '"b.txt"'""")
    reader.run("tenure claim images --max 2")
    reader.run('tenure nack images 2 --dead --reason "not an image"')


def _a_directory(reader: Reader) -> None:
    reader.run("tenure serve --data DIR")
    reader.run("tenure put mail 1 2 3")
    reader.close()


def _a_served_directory(reader: Reader) -> None:
    reader.run("tenure serve --data DIR")
    reader.run("tenure put mail 1 2 3")


def _keys(reader: Reader) -> None:
    keys = reader.directory / "etc" / "tenure" / "keys"
    keys.parent.mkdir(parents=True)
    keys.write_text("0f3c9ab1\n")


def _an_old_directory(reader: Reader) -> None:
    """The directory of a server without a home."""
    reader.run("tenure serve --data /var/lib/old")
    reader.close()


def _a_pipeline(reader: Reader) -> None:
    (reader.directory / "my_steps.py").write_text("def with_currency(frame):\n    return frame\n")
    entry = '{"id": 1, "amount": 2.5, "at": "2026-11-15T08:00:00Z"}'
    reader.run(f"tenure buffer produce s3://my-bucket/orders-buffer <<< '{entry}'")


def _one_job(reader: Reader) -> None:
    reader.run("tenure serve --data served")
    reader.run("tenure put letters '{}'")
    send = reader.directory / "send"
    send.write_text("#!/bin/sh\n")
    send.chmod(0o755)


def _a_log(reader: Reader) -> None:
    """What the Python of the page has left behind."""
    reader.run("tenure serve --data data")
    reader.close()


def _served_worker(reader: Reader) -> None:
    reader.run("tenure serve --data served")
    _worker_app(reader)


PREPARE: dict[str, Callable[[Reader], None]] = {
    "docs/how-to/back-up-and-restore.md": _a_served_directory,
    "docs/start.md": _a_log,
    "docs/how-to/export-lifecycle-events.md": _some_events,
    "docs/how-to/handle-dead-letters.md": _a_dead_letter,
    "docs/how-to/keep-the-log-in-a-bucket.md": _an_old_directory,
    "docs/how-to/recover-a-damaged-directory.md": _a_directory,
    "docs/how-to/run-a-pipeline.md": _a_pipeline,
    "docs/how-to/run-the-server.md": _keys,
    "docs/how-to/upgrade.md": _a_directory,
    "docs/how-to/watch-your-workers.md": _served_worker,
    "docs/reference/command-line.md": _one_job,
}


def _is_run(page: Path, command: str) -> bool:
    return not runs_spark(command) and command.partition("#")[0].strip() not in NOT_RUN.get(named(page), {})


def _has_commands(page: Path) -> bool:
    return any(_is_run(page, c) for block in blocks_of(page) if block.language in SHELLS for c in commands_of(block))


LONG = (
    "tour",
    "run-a-job-queue-end-to-end",
    "export-lifecycle-events",
    "back-up-and-restore",
    "watch-your-workers",
    "command-line",
    "add-a-second-machine",
)
"""Pages whose commands take long; the others show that commands of pages run."""


def _case(page: Path) -> Any:
    return pytest.param(page, marks=pytest.mark.full if page.stem in LONG else (), id=named(page))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [_case(page) for page in PAGES if _has_commands(page)])
def test_every_command_of_a_page_runs(page: Path, installation: Path, tmp_path: Path):
    found = blocks_of(page)
    with ExitStack() as stack:
        reader = Reader(installation, tmp_path)
        if any(address in block.body for block in found for address in REDIS):
            redis = stack.enter_context(servers.server())
            reader.places |= dict.fromkeys(REDIS, f"127.0.0.1:{redis.port}")
        stack.callback(reader.close)
        PREPARE.get(named(page), lambda _: None)(reader)
        for block in found:
            if block.file is not None:
                reader.save(block)
            if block.language in SHELLS:
                for command in commands_of(block):
                    if _is_run(page, command):
                        reader.run(command, code=CODES.get(named(page), {}).get(command.partition("#")[0].strip(), 0))


@pytest.mark.parametrize(
    ("page", "block"),
    [(page, block) for page in PAGES for block in blocks_of(page) if block.language in PARSED],
    ids=lambda value: named(value) if isinstance(value, Path) else str(value.line),
)
def test_every_file_that_a_page_shows_can_be_read(page: Path, block: Block):
    PARSED[block.language](block.body)


def _passed_over(page: Path, block: Block) -> list[str]:
    """What of a block is run by no test and stands in no list."""
    listed = NOT_RUN.get(named(page), {})
    if block.language == "":  # a drawing
        return []
    if block.language in SHELLS:
        return [c for c in commands_of(block) if not _is_run(page, c) and not runs_spark(c) and _key(c) not in listed]
    if block.language in ("python", "text"):
        return [] if page.parent.name != "design" else [block.body] if _key(block.body) not in listed else []
    if block.language in PARSED:
        return []
    return [] if named(page) in SPARK_PAGES or _key(block.body) in listed else [block.body]


def _key(text: str) -> str:
    return text.strip().splitlines()[0].partition("#")[0].strip() or text.strip().splitlines()[0]


def test_no_block_is_passed_over_in_silence():
    found = [(page, block) for page in PAGES for block in blocks_of(page)]
    assert len(found) > 140
    assert {block.language for _, block in found} <= {"", "python", "py", "text", *SHELLS, *DATA}
    silent = [
        f"{named(page)}:{block.line}: {_key(part)}" for page, block in found for part in _passed_over(page, block)
    ]
    assert silent == []


def test_what_is_not_run_stands_on_its_page_and_says_why():
    for name, listed in NOT_RUN.items():
        [page] = [page for page in PAGES if named(page) == name]
        there = {_key(block.body) for block in blocks_of(page)}
        there |= {
            _key(command) for block in blocks_of(page) if block.language in SHELLS for command in commands_of(block)
        }
        assert set(listed) <= there
        assert all(listed.values())


def test_the_address_of_the_server_is_the_usual_one_on_every_page():
    assert SERVER == "127.0.0.1:4000"
