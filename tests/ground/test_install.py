"""What is said about installing is true: for a clone that was never published, and for a package that was."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import tenure
from tenure.cli.guard import run_guarded
from tenure.errors import Invalid
from tenure.extras import extra_of, importing, install_hint, needs_extra
from tenure.spark.sinks.delta.sink import _PACKAGES as DELTA

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "tenure"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
_PIN = re.compile(r"^([\w.-]+)==([\w.]+)", re.MULTILINE)


def pins(name: str) -> dict[str, list[Version]]:
    """The pinned versions of a requirement file; markers may give a package more than one."""
    found: dict[str, list[Version]] = {}
    for package, version in _PIN.findall((ROOT / "requirements" / name).read_text()):
        found.setdefault(package, []).append(Version(version))
    return found


def test_an_install_hint_serves_a_published_package_and_a_clone():
    assert install_hint("buffer") == "pip install 'tenure[buffer]' (in a clone: pip install '.[buffer]')"
    error = needs_extra("psycopg is not installed", "postgres", code="no_psycopg")
    assert (error.code, error.message) == ("no_psycopg", f"psycopg is not installed: {install_hint('postgres')}")


def test_an_import_that_fails_names_the_extra_that_brings_the_package():
    with (
        pytest.raises(Invalid, match=r"spans need it: pip install 'tenure\[otel\]'") as caught,
        importing("spans need it", "otel"),
    ):
        import a_package_that_is_not_there  # type: ignore[import-not-found]  # noqa: F401
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_module_of_our_own_that_is_missing_is_not_blamed_on_an_extra():
    with pytest.raises(ModuleNotFoundError), importing("spans need it", "otel"):
        raise ModuleNotFoundError("gone", name="tenure.gone")


@pytest.mark.parametrize(("package", "extra"), [("pyspark.sql", "spark"), ("obstore", "buffer"), ("left_pad", None)])
def test_extra_of_a_package_is_known(package: str, extra: str | None):
    assert extra_of(ModuleNotFoundError("missing", name=package)) == extra


@pytest.mark.parametrize(("spark", "extra"), [(True, "spark"), (False, "buffer")])
def test_a_command_whose_extra_is_missing_says_how_to_install_it(
    spark: bool, extra: str, capsys: pytest.CaptureFixture[str]
):
    def work() -> int:
        raise ModuleNotFoundError("missing", name="pyarrow")

    assert run_guarded(work, as_json=False, spark=spark) == 2
    assert f"pyarrow is not installed: {install_hint(extra)}" in capsys.readouterr().err


def test_nothing_but_the_one_function_catches_a_missing_package_for_an_extra():
    asking = re.compile(r"except (ModuleNotFoundError|ImportError)[^\n]*\n\s+raise needs_extra")
    assert [path for path in SOURCES.rglob("*.py") if asking.search(path.read_text())] == []


def test_every_message_about_an_extra_comes_from_one_function():
    said = {path.name for path in SOURCES.rglob("*.py") if re.search(r"Invalid\(.*tenure\[", path.read_text())}
    assert said == {"extras.py"} - {"extras.py"}
    used = {found for path in SOURCES.rglob("*.py") for found in re.findall(r"tenure\[(\w+)\]", path.read_text())}
    assert used <= set(EXTRAS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_that_speaks_of_installing_gives_the_command_for_a_clone(page: Path):
    commands = re.findall(r"pip install ('?[\w.\[\]/*-]+'?)", page.read_text())
    installs = [command.strip("'") for command in commands]
    extras = {found for text in installs for found in re.findall(r"\[(\w+)\]", text)}
    assert extras <= set(EXTRAS)
    for text in installs:
        if text.startswith("tenure"):
            assert text.replace("tenure", ".") in installs, f"pip install {text} alone works only once it is published"


def test_the_spark_extra_brings_a_spark_that_delta_has_a_connector_for():
    [spark] = [found for line in EXTRAS["spark"] if (found := Requirement(line)).name == "pyspark"]
    for major, minor in DELTA:
        assert spark.specifier.contains(f"{major}.{minor}.9")
    major, minor = max(DELTA)
    assert not spark.specifier.contains(f"{major}.{minor + 1}.0")
    assert not spark.specifier.contains(f"{major + 1}.0.0")
    assert all(spark.specifier.contains(version) for version in pins("dev.txt")["pyspark"])


# The last release with an advisory that we know of: what a floor must lie above.
ADVISORIES = {
    "h2": "4.2.0",  # CVE-2025-57804
    "pyarrow": "23.0.0",  # CVE-2026-25087
    "pyspark": "3.5.6",  # CVE-2025-54920
    "redis": "4.5.4",  # CVE-2023-28859
}


def test_no_floor_admits_a_release_with_an_advisory():
    lines = [*PROJECT["dependencies"], *(line for name, extra in EXTRAS.items() if name != "dev" for line in extra)]
    seen = set()
    for requirement in map(Requirement, lines):
        if (worst := ADVISORIES.get(requirement.name)) is not None:
            seen.add(requirement.name)
            assert not requirement.specifier.contains(worst), requirement
    assert seen == set(ADVISORIES)


def test_every_pin_satisfies_what_the_project_asks_for():
    pinned = pins("dev.txt")
    for line in (*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)):
        requirement = Requirement(line)
        if requirement.name != "tenure":
            assert any(requirement.specifier.contains(version) for version in pinned[requirement.name]), line


def test_building_needs_no_development_environment():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    steps = subprocess.check_output(["make", "-n", "build"], cwd=ROOT, env=environment, text=True)
    assert [line.split(maxsplit=1)[1] for line in steps.splitlines()] == ["tools/venv.py build"]
    build, dev = pins("build.txt"), pins("dev.txt")
    assert "hatchling" in build
    assert {name: dev[name] for name in build} == build


def test_the_version_is_said_in_one_place_and_has_its_entry_in_the_changelog():
    assert "version" in PROJECT["dynamic"]
    released = re.findall(r"^## \[(\d[\w.]*)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == tenure.__version__


def test_the_description_of_the_package_leads_to_no_file_of_the_repository():
    specification = importlib.util.spec_from_file_location("long_description", ROOT / "tools" / "long_description.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    text = module.rendered((ROOT / "README.md").read_text())
    assert re.findall(r"\]\((?!\w+://)[^)]*\)", text) == []
    assert "*Picture: " in text
    assert "First steps (`docs/start.md` in the repository)" in text
