"""The documentation is held to the code: links lead somewhere, examples run, tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.blocks import ROOT, blocks, pages, run_page

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PAGES = pages()
# The README has a test of its own; the design notes show interfaces, which are not programs.
RUN = [p for p in PAGES if p.name != "README.md" and p.parent.name != "design" and blocks(p, "python")]


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual hosts make them."""
    heads = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=ids)
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


@pytest.mark.parametrize("page", RUN, ids=ids)
def test_the_code_on_a_page_runs_and_prints_what_it_shows(page: Path, tmp_path: Path):
    run_page(page, tmp_path)


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
