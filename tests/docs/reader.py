"""A reader who does what a page says: in a directory of their own, with the installed package, command by command."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.kit.doc_blocks import Block, commands_of
from tests.kit.installed_wheel import ROOT, clean_environment, install
from tests.kit.redis_servers import free_port

__all__ = ["Reader"]

# How long anything may take before a test gives up; nothing is right or wrong because of it.
PATIENCE_S: Final = 120.0
SERVER: Final = "127.0.0.1:4000"
# What stays in the foreground of a reader's other terminal, and what it prints once it is at work.
LASTING: Final = (
    (re.compile(r"\btenure serve\b"), "listening on"),
    (re.compile(r"^tenure worker\b"), "working at"),
    (re.compile(r"^tenure export\b(?!.*--once)"), "exporting lifecycle events"),
    (re.compile(r"--follow\b"), '"event"'),
    (re.compile(r"^curl -N\b"), ""),
    (re.compile(r"^faststream run\b"), "FastStream app started"),
)
_OWNER: Final = re.compile(r"\btenure (?:serve|export)\b")
# Servers with an address for each other run side by side.
_SHARES: Final = "--advertise"
# What ends well when it is told to; everything else is simply ended.
_DRAINS: Final = re.compile(r"\btenure (?:serve|worker|export)\b|^faststream\b")
_ASSIGNMENT: Final = re.compile(r"^\w+=\S+$")
_INSTALL: Final = re.compile(r"^pip install ('?)([^'# ]+)\1")
_installed: set[str] = set()


class Reader:
    """Follows one page. Places that a test machine does not have are replaced by some that it has."""

    def __init__(self, home: Path, directory: Path, *, places: dict[str, str] | None = None) -> None:
        self.home = home
        self.directory = directory
        self.ports = {name: free_port() for name in ("4000", "4001", "9100")}
        self.places = {
            "s3://": f"file://{directory}/store/",
            "file:///": f"file://{directory}/",
            " /var/lib/": f" {directory}/var/lib/",
            "/etc/tenure": f"{directory}/etc/tenure",
            **{f"-port {port}": f"-port {free}" for port, free in self.ports.items()},
            "--wait 30s": "--wait 1s",  # for a queue that is empty
            **{f"127.0.0.1:{port}": f"127.0.0.1:{free}" for port, free in self.ports.items()},
            **(places or {}),
        }
        self._lasting: list[tuple[str, subprocess.Popen[str], Path]] = []
        self._assigned: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['4000']}"

    def here(self, text: str) -> str:
        """The text with this machine's places in it; where two fit, the longer one, and each once."""
        longest = sorted(self.places, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest)), lambda found: self.places[found[0]], text)

    def save(self, block: Block) -> None:
        """Write a block to the file that the page names."""
        assert block.file is not None
        path = self.directory / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(block.body))

    def follow(self, block: Block, *, codes: dict[str, int]) -> None:
        """Run every command of a block. ``codes`` are those that end with another exit code than 0."""
        for command in commands_of(block):
            self.run(command, code=codes.get(command.partition("#")[0].strip(), 0))

    def run(self, command: str, *, code: int = 0) -> str:
        """Run one command to its end, or start it where it lasts; returns what it printed."""
        if found := _INSTALL.match(command):
            return self._install(found[2])
        if _ASSIGNMENT.match(command):
            self._assigned.append(self.here(command))
            return ""
        if _OWNER.search(command):  # one process has the directory; a page that shows two ways means one of them
            self._stop(lambda other: _OWNER.search(other) is not None and not (_SHARES in other and _SHARES in command))
        for pattern, ready in LASTING:
            if pattern.search(command):
                return self._start(command, ready)
        done = subprocess.run(
            ["bash", "-c", "\n".join([*self._assigned, self.here(command)])],
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _install(self, what: str) -> str:
        """See that it resolves, from this tree and the cache; the environment has it already, from the wheel."""
        if what not in _installed:
            install(self.home, str(ROOT) + what[1:] if what.startswith(".") else what, dry_run=True)
            _installed.add(what)
        return ""

    def _start(self, command: str, ready: str) -> str:
        output = self.directory / f"output-{len(self._lasting)}"
        with output.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", "\n".join([*self._assigned, self._executed(command)])],
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._lasting.append((command, process, output))
        end = time.monotonic() + PATIENCE_S
        while ready not in output.read_text():
            assert process.poll() is None, f"{command}\n{output.read_text()}"
            assert time.monotonic() < end, f"{command}\n{output.read_text()}"
            time.sleep(0.02)
        return output.read_text()

    def _executed(self, command: str) -> str:
        """The command so that its process gets our signals, and not a shell around it."""
        text = self.here(command).partition(" #")[0]
        assignments = [word for word in shlex.split(text) if _ASSIGNMENT.match(word)]
        if assignments and text.startswith(assignments[0].partition("=")[0]):
            name, _, rest = text.partition(" tenure ")
            return f"{name} exec tenure {rest}"
        return f"exec {text}"

    def _environment(self) -> dict[str, str]:
        told = {"TENURE_URL": self.url, "TENURE_PORT": str(self.ports["4000"]), "HOME": str(self.directory)}
        return clean_environment(self.home, **told)

    def output_of(self, part: str) -> str:
        """What the lasting command with that in it has printed so far."""
        [path] = [path for command, _, path in self._lasting if part in command]
        return path.read_text()

    def close(self) -> None:
        """Stop what lasts, as its reader would: the last started first."""
        self._stop(lambda _: True)

    def _stop(self, chosen: Callable[[str], bool]) -> None:
        for entry in reversed([entry for entry in self._lasting if chosen(entry[0])]):
            command, process, output = entry
            self._lasting.remove(entry)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(PATIENCE_S)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            graceful = _DRAINS.search(command) is not None
            assert code == (0 if graceful else -signal.SIGTERM), f"{command} ended with {code}\n{output.read_text()}"
