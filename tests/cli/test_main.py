"""The command as such: help, version, exit codes, and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Tenure


def test_help_names_every_command_and_the_exit_codes(tenure: Tenure):
    done = tenure("--help")
    assert done.returncode == 0
    for word in ("tour", "inspect", "verify", "salvage", "Exit codes"):
        assert word in done.stdout


def test_version_is_one_line(tenure: Tenure):
    done = tenure("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tenure 0.")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("bogus",), ("verify",), ("verify", "a", "b"), ("inspect", "--bogus", "a")])
def test_wrong_usage_is_exit_code_2(tenure: Tenure, arguments: tuple[str, ...]):
    done = tenure(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_importing_it_is_light():
    code = "import sys, tenure.cli.main; print([name for name in ('typer', 'rich', 'asyncio') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_command_loads_no_other():
    code = """
import sys
from typer.testing import CliRunner
from tenure.cli.app import app
done = CliRunner().invoke(app, ["topics", "--help"])
assert done.exit_code == 0, done
rooms = ("tenure.cli.commands.", "tenure.cli.buffer.", "tenure.cli.pipeline.", "tenure.cli.spark.")
print(sorted(name for name in sys.modules if name.startswith(rooms)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tenure.cli.commands.topics']"


def test_the_package_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "tenure", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tenure ")


def test_a_failure_nobody_foresaw_is_one_line_and_exit_code_3():
    code = """
import tenure.cli.app, tenure.cli.main
def fail(**_): raise ZeroDivisionError("two\\nlines")
tenure.cli.app.app = fail
tenure.cli.main.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "tenure: ZeroDivisionError: two lines. This is a bug in tenure; TENURE_DEBUG=1 shows where.\n"


def test_output_that_nobody_reads_is_no_failure_to_complain_about(data: Path):
    command: list[str | Path] = [Path(sys.executable).with_name("tenure"), "inspect", "--data", data]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        complaint = child.stderr.read()
    assert complaint == ""


def test_an_interrupt_while_it_starts_leaves_no_traceback():
    code = """
import sys, tenure.cli.main
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "tenure.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Slow())
tenure.cli.main.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("words", [("claim", "q", "--max", "0"), ("dead", "drop"), ("nothing",), ("put", "q", "--no")])
def test_wrong_usage_is_a_json_document_where_json_was_asked_for(tenure: Tenure, words: tuple[str, ...]):
    done = tenure(*words, "--json")
    assert (done.returncode, done.stderr) == (2, "")
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["message"] != "") == ("usage", True)
