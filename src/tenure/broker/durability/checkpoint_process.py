"""A checkpoint made in a process of its own, because a fold in a thread would take turns with the broker's loop.

The child reads the directory and writes one file; only the broker publishes that. The two speak in lines: the child
sends ``ready`` once it holds the segments, the broker answers with a position and the ids of the topics whose bases it
wants, the child with what it made or an error. The child ends when its standard input does, so it does not outlive a
broker that was killed.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

import msgspec

from tenure.broker.durability.checkpoint_fold import CheckpointFold, Made
from tenure.errors import Overloaded, TenureError
from tenure.log.disk import PosixDisk
from tenure.log.interface import Position
from tenure.python_child import module_command, module_environment

__all__ = ["CheckpointProcess"]

_NICE = 19
_encode = msgspec.json.Encoder().encode
_decode_asked = msgspec.json.Decoder(tuple[Position, list[int]]).decode
_decode_made = msgspec.json.Decoder(Made).decode


class CheckpointProcess:
    """A `CheckpointFold` in another process. Every method but ``abort`` waits, and belongs into a thread."""

    def __init__(self, root: Path, *, memory_bytes_max: int) -> None:
        self._arguments = [str(root), str(memory_bytes_max)]
        self._process: subprocess.Popen[bytes] | None = None
        self._aborted = False

    def open(self) -> None:
        """Start the process and wait until it holds the segments. Raises Overloaded."""
        if not sys.executable:
            raise Overloaded("no process for a checkpoint could be started: this program embeds its interpreter")
        try:
            self._process = subprocess.Popen(
                module_command(__name__, *self._arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=module_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise Overloaded(f"no process for a checkpoint could be started: {error.strerror}") from error
        if self._aborted:
            self._process.kill()
        self._expect("ready")

    def write(self, stop: Position, topics: Sequence[int] = ()) -> Made:
        """Let the process write the checkpoint at ``stop``, and the bases of some topics. Raises Overloaded."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `_expect` says why
            self._process.stdin.write(_encode((stop, list(topics))) + b"\n")
            self._process.stdin.flush()
        return _decode_made(self._expect("made"))

    def _expect(self, word: str) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode(errors="replace")
        said, _, rest = line.strip().partition(" ")
        if said != word:
            raise Overloaded(f"no checkpoint was made: {rest or f'its process ended with {self._process.wait()}'}")
        return rest

    def abort(self) -> None:
        """Kill the process; from any thread."""
        self._aborted = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process and wait for that."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _main() -> None:
    root, memory_bytes_max = sys.argv[1:]
    os.nice(_NICE)
    gc.disable()
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory_bytes_max), int(memory_bytes_max)))
    try:
        made = CheckpointFold(PosixDisk(root, create=False))
        made.open()
        _say("ready")
        stop, topics = _decode_asked(sys.stdin.buffer.readline())
        Thread(target=_end_with_input, daemon=True).start()
        _say(f"made {_encode(made.write(stop, topics)).decode()}")
    except TenureError as error:
        _say(f"error {error.message}")
    except MemoryError:
        _say(f"error it takes more than checkpoint_memory_bytes_max = {memory_bytes_max}")


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _say(line: str) -> None:
    print(line.replace("\n", " "), flush=True)


if __name__ == "__main__":
    _main()
