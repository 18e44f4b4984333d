"""The page of faults holds every case once, and names tests that are there."""

from __future__ import annotations

import re

from tests.kit.doc_blocks import ROOT
from tests.kit.named_tests import missing, named

PAGE = (ROOT / "docs" / "faults.md").read_text()
_, *CASES = re.split(r"^### ", PAGE, flags=re.MULTILINE)
NUMBERS = [int(case.partition(".")[0]) for case in CASES]


def test_every_fault_from_1_to_56_is_on_the_page_once_and_in_order():
    assert [*range(1, 57)] == NUMBERS


def test_every_fault_names_a_test_that_shows_what_is_promised():
    assert [number for number, case in zip(NUMBERS, CASES, strict=True) if not named(case)] == []
    assert missing(PAGE) == []


def test_every_fault_that_code_or_a_test_speaks_of_is_on_the_page():
    spoken = re.compile(r"\bfaults?[ _](\d+)(?:(?:, | and |_)(\d+))*", re.IGNORECASE)
    unknown = []
    for path in sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")]):
        for match in spoken.finditer(path.read_text()):
            numbers = {int(number) for number in re.findall(r"\d+", match[0])}
            if not numbers <= set(NUMBERS):
                unknown.append(f"{path.relative_to(ROOT)}: {match[0]}")
    assert unknown == []
