"""What earlier runs found out, kept below `.mutants/`: which test calls what, and the fate of each mutant."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from tools.mutants.calls import record
from tools.mutants.mutate import Mutant
from tools.mutants.sample import FLOORS, ROOMS, Calls
from tools.mutants.trial import Fate, in_child


class Book:
    """The fates are lines that are only ever added, so that several processes write them and a cut loses one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root / ".mutants"
        self._directory.mkdir(exist_ok=True)
        self._fates = self._directory / "fates.jsonl"
        floors = [root / floor for floor in FLOORS]
        files = sorted(path for floor in floors for path in (floor.rglob("*.py") if floor.is_dir() else [floor]))
        self._test_files = [path for path in files if path.name.startswith("test_")]
        self._tests_hash = _hash([*files, *sorted((root / "tests" / "kit").rglob("*.py"))])
        self._module_hashes: dict[Path, str] = {}

    def calls(self) -> Calls:
        """Return what each test calls, from earlier runs where neither the engine nor the test file has changed."""
        kept = self._directory / "calls.json"
        known = json.loads(kept.read_text()) if kept.is_file() else {}
        source = _hash(sorted(path for room in ROOMS for path in (self._root / "src/tenure" / room).rglob("*.py")))
        hashes = {str(path.relative_to(self._root)): f"{source} {_hash([path])}" for path in self._test_files}
        known = {name: entry for name, entry in known.items() if hashes.get(name) == entry["hash"]}
        if missing := [name for name in hashes if name not in known]:
            print(f"recording what the tests of {len(missing)} files call", flush=True)
            tests = self._record(missing)
            for name in missing:
                own = {test: found for test, found in tests.items() if test.partition("::")[0] == name}
                known[name] = {"hash": hashes[name], "tests": own}
            kept.write_text(json.dumps(known))
        return {
            test: (found["seconds"], frozenset(found["calls"]))
            for entry in known.values()
            for test, found in entry["tests"].items()
        }

    def _record(self, files: list[str]) -> dict[str, dict[str, object]]:
        out = self._directory / "recorded.json"
        out.unlink(missing_ok=True)
        said = self._directory / "recording.log"
        child = in_child(lambda: record(files, source=self._root / "src", rooms=ROOMS, out=out), output=str(said))
        os.waitpid(child, 0)
        if not out.is_file():
            raise SystemExit(f"the tests could not be run: see {said.relative_to(self._root)}")
        found: dict[str, dict[str, object]] = json.loads(out.read_text())
        return found

    def note(self, mutant: Mutant, fate: Fate, *, tests: int) -> None:
        """Keep the fate of a mutant that met so many tests."""
        line = {
            "mutant": mutant.name,
            "fate": fate,
            "met": tests,
            "module": self._module_hash(mutant.path),
            "tests": self._tests_hash,
        }
        with self._fates.open("a") as fates:
            fates.write(json.dumps(line) + "\n")

    def fates(self, mutants: Iterable[Mutant]) -> dict[str, Fate]:
        """Return the fates of those mutants that need not be tried again."""
        paths = {mutant.name: mutant.path for mutant in mutants}
        found = dict[str, Fate]()
        lines = self._fates.read_text().splitlines() if self._fates.is_file() else []
        for line in map(json.loads, lines):
            path = paths.get(line["mutant"])
            if path is None or line["module"] != self._module_hash(path):
                continue
            if line["fate"] != Fate.SURVIVED or line["tests"] == self._tests_hash:
                found[line["mutant"]] = Fate(line["fate"])
        return found

    def _module_hash(self, path: Path) -> str:
        if path not in self._module_hashes:
            self._module_hashes[path] = _hash([path])
        return self._module_hashes[path]


def _hash(paths: list[Path]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()
