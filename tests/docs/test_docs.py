"""The documentation is held to the code: links lead somewhere, examples run, tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.snippets import run_python
from tests.kit.doc_blocks import ROOT, blocks, named, pages

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PAGES = pages()
# The design notes show interfaces, which are not programs.
RUN = [page for page in PAGES if page.parent.name != "design" and blocks(page, "python")]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual hosts make them."""
    heads = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path):
    broken = []
    for target in _LINK.findall(_FENCED.sub("", page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        if not found.is_file() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", RUN, ids=named)
def test_the_code_on_a_page_runs_and_prints_what_it_shows(page: Path, installation: Path, tmp_path: Path):
    run_python(page, installation, tmp_path)


def test_every_page_is_reached_from_the_readme():
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = _LINK.findall(_FENCED.sub("", page.read_text()))
        waiting += [(page.parent / name).resolve() for t in targets if (name := t.partition("#")[0]) and "://" not in t]
    assert set(PAGES) - seen == set()


def test_the_readme_starts_with_the_two_commands():
    commands, *_ = blocks(ROOT / "README.md", "console")
    assert [line.split("#")[0].strip() for line in commands.splitlines()] == ["make run", "make test"]
