"""`Child`: one child process of a worker, and the pipe to it."""

from __future__ import annotations

import asyncio
import signal
import socket
from asyncio.subprocess import Process
from contextlib import suppress

import msgspec

from tenure.python_child import module_command, module_environment
from tenure.worker.processes import frames
from tenure.worker.processes.frames import FromChild, FromParent, Ready
from tenure.worker.runtime.timing import Timing, within
from tenure.worker.settings import WorkerSettings

__all__ = ["Child", "ChildDied"]


class ChildDied(Exception):
    """The process of a handler ended during its job."""


class Child:
    """One child process and the pipe to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, app_name: str, *, settings: WorkerSettings) -> Child:
        """Start a process; returns once it has imported the app. Raises ChildDied where it cannot."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *module_command("tenure.worker.processes.child", str(theirs.fileno()), app_name),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    env=module_environment(),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        child = cls(process, *await asyncio.open_connection(sock=ours, limit=settings.frame_bytes_max))
        try:
            ready = await child.read(settings.frame_bytes_max)
            if not isinstance(ready, Ready) or ready.error is not None:
                raise ChildDied(ready.error if isinstance(ready, Ready) else "it said something unexpected")
        except BaseException:
            await child.close()
            raise
        return child

    async def read(self, bytes_max: int) -> FromChild:
        """Return the next message. Raises ChildDied where the process ended or sent no message."""
        try:
            (size,) = frames.HEAD.unpack(await self._reader.readexactly(frames.HEAD.size))
            if size > bytes_max:
                raise ChildDied(f"its process sent {size} bytes, more than {bytes_max}")
            return frames.decode_child(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise ChildDied(f"its process {_describe_exit(await self.process.wait())}") from None
        except msgspec.MsgspecError as error:
            raise ChildDied(f"its process sent what is no message: {error}") from None

    def send(self, message: FromParent) -> None:
        """Send a message. A child that is gone is noticed by `read`."""
        if not self._writer.is_closing():
            self._writer.write(frames.pack(message))

    def kill(self) -> None:
        """Send SIGKILL."""
        with suppress(ProcessLookupError):
            self.process.kill()

    async def leave(self, timing: Timing, ms: int) -> None:
        """Close the pipe, so that the child runs its shutdown hooks and ends; after ``ms`` it is killed."""
        if not self._writer.is_closing():
            self._writer.write_eof()
        with suppress(TimeoutError):
            await within(timing, ms, self.process.wait())
        await self.close()

    async def close(self) -> None:
        """Kill the process and close the pipe."""
        self.kill()
        await self.process.wait()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ": out of memory, or by somebody's hand" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
