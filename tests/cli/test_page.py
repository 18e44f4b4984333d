"""docs/reference/command-line.md says what `--help` says: every command, and every option of it, and none besides."""

from __future__ import annotations

import re
from functools import cache

import pytest
from typer.testing import CliRunner

from tenure.cli.app import app
from tests.kit.doc_blocks import ROOT

PAGE = (ROOT / "docs" / "reference" / "command-line.md").read_text()
COMMON = {"--url", "--key-file", "--timeout", "--json"}
# What runs on until it is told to stop, or tells a story; and what is JSON anyway.
WITHOUT_JSON = {"serve", "worker", "export", "tour", "buffer manifest"}
_OPTION = re.compile(r"^ {2}(-.+?)(?: {2}|$)", re.MULTILINE)


def sections() -> dict[str, str]:
    """The text beneath each heading that names a command."""
    return dict(re.findall(r"^### `tenure ([\w ]+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def commands(*group: str) -> list[str]:
    """The commands as the help lists them, those of a group in its place."""
    listed = re.findall(r"^  (\w+) ", helped(*group).partition("Commands:")[2].partition("\n\n")[0], re.MULTILINE)
    return [found for name in listed for found in commands(*group, name)] if listed else [" ".join(group)]


@cache
def helped(*command: str) -> str:
    """The help as the command prints it, without a process for each."""
    done = CliRunner().invoke(app, [*command, "--help"], prog_name="tenure")
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def options(command: str) -> set[str]:
    """The options as the help lists them, without --help."""
    shown = _OPTION.findall(helped(*command.split()).partition("Options:")[2])
    return {word for row in shown for word in re.findall(r"--?[a-z][\w-]*", row)} - {"--help", "-h"}


def test_every_command_has_a_section_and_every_section_a_command():
    found = commands()
    assert len(found) > 15
    assert set(sections()) == set(found)
    for name in found:
        assert f"`tenure {name.split()[0]}`" in PAGE or f"[`{name}`]" in PAGE


@pytest.mark.parametrize("command", sorted(sections()))
def test_every_option_is_listed_and_no_other(command: str):
    text = sections()[command]
    listed = set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)(?=[`, ])", " ".join(re.findall(r"`[^`]+`", text))))
    has = options(command)
    common = COMMON if has >= COMMON else set()
    assert has - common - listed == set(), "not on the page"
    assert listed - has == set(), "on the page only"


def test_the_common_options_are_explained_once():
    text = PAGE.partition("## What all have in common")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(--[\w-]+)`", text, re.MULTILINE)) == COMMON


def test_every_command_that_gives_an_answer_gives_it_as_json_too():
    without = {name for name in commands() if "--json" not in options(name)}
    assert without == WITHOUT_JSON
