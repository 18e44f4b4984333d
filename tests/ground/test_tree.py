"""The tree speaks of the product alone: no registry, no path of somebody's machine, nothing unpinned."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Written in pieces, so that this file does not find itself.
DOMAINS = {"pypi": "org", "pythonhosted": "org", "npmjs": "org|com", "maven": "org|apache.org", "crates": "io"}
DOMAINS |= {"debian": "org|net", "proxy.golang": "org", "ghcr": "io", "repo1.maven": "org"}
REGISTRY = re.compile("|".join(rf"\b{re.escape(name)}\.(?:{ends})\b" for name, ends in DOMAINS.items()))
# A path counts from its first slash: `/v0/…/work/` is an address of ours.
HOMES = ("work", "root", "home", "Users")
MACHINE_PATH = re.compile(rf"(?<![\w.~}})\]/-])/(?:{'|'.join(HOMES)})/\w")
# Papers that are not in the repository: a reader could not follow them.
ELSEWHERE = re.compile(r"(?i)\bseeds? 0\d\d\b|\bcontract, sec\w+ \d|\((?:see )?sec\w+ \d+\)|\boracle \(?[a-f]\b")


def tracked_files() -> list[Path]:
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.check_output(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, text=True)
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def found(pattern: re.Pattern[str]) -> list[str]:
    hits = []
    for path in tracked_files():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if match := pattern.search(line):
                hits.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    return hits


def test_no_tracked_file_names_a_package_registry():
    assert found(REGISTRY) == []


def test_no_tracked_file_names_a_path_of_one_machine():
    assert found(MACHINE_PATH) == []


def test_no_tracked_file_refers_to_a_paper_outside_of_the_repository():
    assert found(ELSEWHERE) == []


def test_no_lock_file_with_addresses_is_tracked():
    assert [path.name for path in tracked_files() if path.name in {"uv.lock", "poetry.lock", "package-lock.json"}] == []


def pins(name: str) -> dict[str, str]:
    """Each pinned package of a requirement file with everything that stands behind its version."""
    entries = re.split(r"\n(?=\w)", (ROOT / "requirements" / name).read_text())
    return {entry.split("==")[0]: entry for entry in entries if not entry.startswith("#")}


@pytest.mark.parametrize("name", sorted(file.name for file in (ROOT / "requirements").glob("*.txt")))
def test_every_requirement_is_pinned_and_hashed(name: str):
    entries = pins(name)
    assert entries
    for entry in entries.values():
        assert re.match(r"[\w.-]+==[\w.]+ ", entry), entry
        assert "--hash=sha256:" in entry


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", line)[0] for line in requirements}


def test_every_dependency_of_the_project_is_pinned():
    makefile = (ROOT / "Makefile").read_text()
    locked = re.findall(r"^EXTRAS := (.*)$", makefile, re.MULTILINE)[0].split()
    extras = PROJECT["optional-dependencies"]
    wanted = names([*PROJECT["dependencies"], *(line for extra in locked for line in extras[extra])])
    assert wanted - {"tenure"} <= set(pins("dev.txt"))


def test_one_install_goes_all_the_way_from_server_to_worker():
    """What the engine alone looks for is three of them; `test_imports` holds it to that."""
    engine = {"msgspec", "pyroaring", "crc32c"}
    assert names(PROJECT["dependencies"]) == engine | {
        *("uvloop", "httptools", "h2", "cronsim", "typer", "rich"),
    }


def test_the_extras_are_the_documented_ones():
    assert set(PROJECT["optional-dependencies"]) == {
        *("metrics", "otel", "reload", "buffer", "delta", "redis", "faststream"),
        *("spark", "connect", "iceberg", "postgres", "dev"),
    }


def test_bare_make_prints_the_menu():
    # A make above this one must not hand down its flags: under `make -n test` this would print nothing.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    menu = subprocess.check_output(["make"], cwd=ROOT, env=environment, text=True)
    for task in (
        "setup",
        "run",
        "quick",
        "test",
        "test-full",
        "test-mutants",
        "lint",
        "types",
        "format",
        "bench-core",
        "lock",
        "build",
        "clean",
    ):
        assert re.search(rf"^  make {task} +\w", menu, re.MULTILINE)


def test_contributing_names_every_room_and_every_folder_of_tests():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = [path for top in ("src/tenure", "tests") for path in (ROOT / top).iterdir() if path.is_dir()]
    names = [str(path.relative_to(ROOT)) for path in folders if path.name != "__pycache__"]
    assert [name for name in sorted(names) if not re.search(rf"{name}(?![\w/])", text)] == []


def test_continuous_integration_runs_what_people_run():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-2:] == ["make test", "CI=true make run"]
