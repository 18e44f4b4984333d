"""Completion of commands and options in the shells that people use."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cli.conftest import COMMAND, surroundings

# What bash does when somebody presses the tab key: it calls the function that the script has registered.
_PRESS_TAB = """
eval "$(_TENURE_COMPLETE=source_bash tenure)"
COMP_WORDS=({words}) COMP_CWORD={place}
$(complete -p tenure | sed 's/.*-F \\([^ ]*\\) .*/\\1/') tenure
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def pressed(*words: str) -> list[str]:
    """The completions of the last word, by a real bash."""
    script = _PRESS_TAB.format(words=" ".join(f"'{word}'" for word in words), place=len(words) - 1)
    environment = surroundings() | {"PATH": f"{COMMAND.parent}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes_a_command():
    assert pressed("tenure", "pipe") == ["pipeline"]


def test_bash_completes_a_command_of_a_group_and_an_option():
    assert pressed("tenure", "dead", "re") == ["redrive"]
    assert pressed("tenure", "claim", "--le") == ["--lease"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed_and_is_one_that_the_shell_reads(shell: str):
    environment = surroundings(_TENURE_COMPLETE=f"source_{shell}")
    done = subprocess.run([COMMAND], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "_TENURE_COMPLETE" in done.stdout
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=done.stdout, text=True, check=False).returncode == 0


def test_completion_is_installed_by_an_option():
    done = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=False, env=surroundings())
    assert "--install-completion" in done.stdout
