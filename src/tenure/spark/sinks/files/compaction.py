"""Compaction of a file table: many small files into few large ones, in place, with concurrent readers and writers.

Small files of one partition and of about the same size are rewritten together. One commit of the table's log names the
new files and leaves out the old ones, so a reader sees the one or the other. Only a compact number of the log restates
everything and can leave files out; numbers before it are filled with commits that add nothing.

The commit carries a mark, as a range does: the number that the log had when the files were chosen. A compaction that
finds such a mark at its own number or above was overtaken, and adds nothing. So what an attempt left behind can be
removed by the same rule as that of a range (``stage``). Replaced files stay for a while, for readers that know them
from the log of before; they are recorded before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Corrupt, Invalid, Overloaded, TenureError
from tenure.objects.background import background
from tenure.spark.sinks.files.lines import Line, Mark
from tenure.spark.sinks.files.log import ATTEMPTS_MAX, FileLog, LogState
from tenure.spark.sinks.files.replaced import list_replaced, record_replaced
from tenure.spark.sinks.files.stage import Stage
from tenure.spark.sinks.places import Place

__all__ = ["FileCompaction", "Rewriter", "choose_files"]

_OWN: Final = "_compaction"
"""Buffer and sink in the mark of a compaction; no buffer has this name."""
_FILES_MAX: Final = 1_000
"""Files of one rewrite."""
_REWRITES_MAX: Final = 64
"""Rewrites of one commit."""
_ROUNDS_MAX: Final = 10_000


class Rewriter(Protocol):
    """A reader and writer of data files, by Spark's paths."""

    def rewrite(self, paths: Sequence[str], folder: str) -> None:
        """Write the rows of the files as one more file in the folder."""
        ...

    def count(self, paths: Sequence[str]) -> int:
        """Return the number of rows in files and folders."""
        ...


class Chosen(NamedTuple):
    """Files of one folder that are rewritten as one."""

    folder: str
    lines: tuple[Line, ...]


class FileCompaction:
    """A compaction of one table.

    ``files_min`` is how many small files are worth a rewrite where they are less than half of ``file_bytes`` together;
    replaced files are removed ``keep_ms`` later, by the next run.
    """

    def __init__(
        self, place: Place, rewriter: Rewriter, *, file_bytes: int, files_min: int = 8, keep_ms: int = 86_400_000
    ) -> None:
        if file_bytes < 1 or files_min < 2 or keep_ms < 0:
            raise Invalid("file_bytes is at least 1, files_min at least 2, and keep_ms not negative")
        self._place, self._rewriter = place, rewriter
        self._file_bytes, self._files_min, self._keep_ms = file_bytes, files_min, keep_ms
        self._log = FileLog(place.store(), place.spark_url)

    def run(self) -> tuple[int, int]:
        """Rewrite until nothing is worth it, then remove what may go; return how many files became how many.

        Raises Corrupt for a damaged log or file, Overloaded (``table_busy``) where others commit all the time,
        Indeterminate where the store's answer to a commit was lost: run it again.
        """
        before = after = 0
        for _ in range(_ROUNDS_MAX):
            state = background().run(self._log.read())
            found = choose_files(self._place, state.files, file_bytes=self._file_bytes, files_min=self._files_min)
            if not found:
                break
            made = self._round(state, found[:_REWRITES_MAX])
            if made is not None:
                before, after = before + sum(len(one.lines) for one in found[:_REWRITES_MAX]), after + made
        background().run(self._remove_replaced())
        return before, after

    def _round(self, state: LogState, found: Sequence[Chosen]) -> int | None:
        """Rewrite and commit; return the number of new files, None where another compaction was faster."""
        commit = Commit(_OWN, _OWN, state.last, state.last, 1)
        stage = Stage(self._place, self._log.retrying, commit)
        old = [line for one in found for line in one.lines]
        try:
            for one in found:
                folder = f"{stage.key}/{one.folder}" if one.folder else stage.key
                self._rewriter.rewrite([self._path(line) for line in one.lines], self._place.spark_path(folder))
            lines = background().run(stage.publish())
            self._check([self._path(line) for line in old], [self._path(line) for line in lines])
        except Exception:
            with suppress(TenureError):
                background().run(stage.discard())
            # Another compaction that was faster removes what this one is writing.
            if _is_overtaken(background().run(self._log.read()), commit):
                return None
            raise
        return background().run(self._finish(stage, Mark.of(commit, stage.attempt), old, lines))

    def _path(self, line: Line) -> str:
        return self._place.spark_path(self._place.key_of(line.path))

    def _check(self, old: Sequence[str], new: Sequence[str]) -> None:
        had, has = self._rewriter.count(old), self._rewriter.count(new)
        if had != has:
            raise Corrupt(
                f"{len(old)} files of the table have {had} rows, and their compaction has {has}: nothing was replaced. "
                "Verify the files",
                code="table_file_damaged",
            )

    async def _finish(self, stage: Stage, mark: Mark, old: Sequence[Line], lines: Sequence[Line]) -> int | None:
        keys = [self._place.key_of(line.path) for line in old]
        await record_replaced(self._log.retrying, stage.attempt, keys)
        committed = await self._commit(mark, old, lines)
        if not committed:
            await stage.discard()
        await stage.clean(await self._log.read())
        return len(lines) if committed else None

    async def _commit(self, mark: Mark, old: Sequence[Line], lines: Sequence[Line]) -> bool:
        """Replace the files in the log; return False where another compaction replaced some of them."""
        dropped = {line.path for line in old}
        for turn in range(ATTEMPTS_MAX):
            state = await self._log.read()
            if _is_overtaken(state, mark):
                return state.marks[_OWN, _OWN].attempt == mark.attempt
            if not dropped <= {line.path for line in state.files}:
                return False
            if not await self._log.replace(state, mark, dropped=dropped, files=lines):
                await self._log.retrying.pause(turn, 250)
        raise Overloaded("others commit to the table all the time", code="table_busy")

    async def _remove_replaced(self) -> None:
        """Delete files that compactions replaced long enough ago, and the records that name them."""
        state, retrying = await self._log.read(), self._log.retrying
        last = state.marks.get((_OWN, _OWN))
        if last is None:
            return
        live = {self._place.key_of(line.path) for line in state.files}
        due_ms = await retrying.store.now_ms() - self._keep_ms
        records, due, kept = list[str](), set[str](), set[str]()
        async for one in list_replaced(retrying):
            if one.number > last.high:  # a compaction under way
                continue
            if not live.isdisjoint(one.keys):  # of an attempt that was given up
                records.append(one.record)
            elif one.modified_ms <= due_ms:
                records.append(one.record)
                due.update(one.keys)
            else:
                kept.update(one.keys)
        if records:
            await retrying.delete(sorted(due - kept))
            await retrying.delete(records)


def _is_overtaken(state: LogState, own: Commit | Mark) -> bool:
    """Return whether a compaction, of this number or a later one, is in the log."""
    last = state.last_committed(_OWN, _OWN)
    return last is not None and last >= own.high


def choose_files(place: Place, lines: Sequence[Line], *, file_bytes: int, files_min: int) -> list[Chosen]:
    """Return the files that are rewritten together: of one folder, of about one size, in the order of the log.

    Sizes are compared by the power of eight, so that a file is rewritten a few times until it is large, and not with
    every file that joins.
    """
    open_ones, sizes, found = dict[tuple[str, int], list[Line]](), dict[tuple[str, int], int](), list[Chosen]()

    def close(folder: str, taken: list[Line]) -> None:
        if len(taken) >= files_min or (len(taken) > 1 and sum(line.size for line in taken) >= file_bytes // 2):
            found.append(Chosen(folder, tuple(taken)))

    for line in lines:
        if line.size >= file_bytes // 2:
            continue
        key = (place.key_of(line.path).rpartition("/")[0], line.size.bit_length() // 3)
        taken = open_ones.setdefault(key, [])
        if len(taken) >= _FILES_MAX or sizes.get(key, 0) + line.size > file_bytes:
            close(key[0], taken)
            taken.clear()
            sizes[key] = 0
        taken.append(line)
        sizes[key] = sizes.get(key, 0) + line.size
    for (folder, _), taken in open_ones.items():
        close(folder, taken)
    return found
