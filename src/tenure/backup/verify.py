"""Verify a backup: every digest, and the log from its first frame to the end that the manifest names."""

from __future__ import annotations

from typing import NamedTuple

from tenure.backup.files import BackupFiles, read_manifest
from tenure.backup.manifest import Manifest
from tenure.backup.place import Place
from tenure.errors import Corrupt
from tenure.log.opening import check_declared
from tenure.log.recovery import Scan

__all__ = ["Verified", "verify_backup"]


class Verified(NamedTuple):
    """The outcome: what the backup holds, how many batches and frames were read, and every problem in a sentence."""

    manifest: Manifest
    batches: int
    frames: int
    problems: list[str]


def verify_backup(place: Place) -> Verified:
    """Read every byte of a backup, and change nothing.

    Raises NotFound where there is no backup, Corrupt where its manifest is damaged or of a newer format.
    """
    manifest = read_manifest(place)
    files = BackupFiles(place, manifest)
    try:
        batches, frames = _walk(files, manifest)
        problems = _problems_of(files, manifest, checkpoint_only=True)
    except Corrupt as error:
        batches = frames = 0
        problems = _problems_of(files, manifest, checkpoint_only=False) or [error.message]
    return Verified(manifest, batches, frames, problems)


def _walk(files: BackupFiles, manifest: Manifest) -> tuple[int, int]:
    """Read the log; return how many batches and frames it has. Raises Corrupt."""
    heads = files.heads()
    if any(head.log_id.hex() != manifest.log_id for head in heads):
        raise Corrupt("a segment belongs to another log. Use another backup.", code="backup_damaged")
    scan, frames = Scan(files, heads, stop=manifest.position), 0
    for _ in scan.frames():
        frames += 1
    if scan.end[:5] != manifest.position[:5]:
        raise Corrupt(f"the log ends at {scan.end}, not as the manifest says. Use another backup.")
    check_declared(heads, scan.end.dropped)
    return scan.batches, frames


def _problems_of(files: BackupFiles, manifest: Manifest, *, checkpoint_only: bool) -> list[str]:
    """Return every piece that is missing or damaged; the walk has read all but those of the checkpoint."""
    wanted = manifest.files[len(manifest.segments) :] if checkpoint_only else manifest.files
    problems: list[str] = []
    for file in wanted:
        for index in range(len(file.sha256)):
            try:
                files.piece(file, index)
            except Corrupt as error:
                problems.append(error.message)
    return problems
