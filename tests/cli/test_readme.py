"""The README's code runs and prints what the README says."""

from __future__ import annotations

from pathlib import Path

from tests.cli.blocks import ROOT, blocks, run_page


def test_the_code_in_the_readme_runs_and_prints_what_it_shows(tmp_path: Path):
    assert blocks(ROOT / "README.md", "python")
    run_page(ROOT / "README.md", tmp_path)


def test_the_readme_starts_with_the_two_commands():
    commands, *_ = blocks(ROOT / "README.md", "console")
    assert [line.split("#")[0].strip() for line in commands.splitlines()] == ["make run", "make test"]
