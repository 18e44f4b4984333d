"""A process that used an object store ends with the exit code of its work."""

from __future__ import annotations

import _thread
import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tenure.objects.cloud_store import wait_for_foreign_threads

WITHIN_S = 60
# On one core, and with a main thread that lets go of the interpreter's lock only while it waits, the client's thread is
# mostly still handing the result over when the program ends: without the wait at exit, four runs of five abort.
PROGRAM = """
import asyncio, os, sys
from tenure.buffer import open_store
sys.setswitchinterval(1000)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
asyncio.new_event_loop().run_until_complete(open_store("memory://").put("key", b"value"))
print("done", flush=True)
sys.exit(7)
"""


def test_a_program_that_ends_right_after_a_request_keeps_its_exit_code():
    for _ in range(5):
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        assert (ended.returncode, ended.stdout) == (7, "done\n"), ended.stderr


class SlowLoop(asyncio.SelectorEventLoop):
    """A loop that a result is handed to for as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.release = _thread.allocate_lock(), _thread.allocate_lock()
        self.entered.acquire(), self.release.acquire()

    def _write_to_self(self) -> None:
        self.entered.release()
        self.release.acquire()


def test_the_exit_waits_for_a_thread_that_hands_a_result_over():
    loop = SlowLoop()
    _thread.start_new_thread(loop.call_soon_threadsafe, (print,))  # as the client's: not in threading.enumerate()
    loop.entered.acquire()
    assert not wait_for_foreign_threads(0.0), "the thread is there, and the limit is over"
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(wait_for_foreign_threads(WITHIN_S)))
    waiting.start()
    assert not found
    loop.release.release()
    waiting.join(2 * WITHIN_S)
    assert found == [True]
    loop.close()


# A thread that asks for the interpreter's lock, which the main thread does not let go of.
ENTERING = """
import ctypes, os, sys
from tenure.objects.cloud_store import wait_for_foreign_threads
sys.setswitchinterval(1000)
this = ctypes.PyDLL(None)
entry = ctypes.cast(ctypes.pythonapi.PyGILState_Ensure, ctypes.c_void_p)
assert wait_for_foreign_threads(0.0)
assert this.pthread_create(ctypes.byref(ctypes.c_ulong()), None, entry, None) == 0
while len(sys._current_exceptions()) < 2:
    pass
os._exit(0 if not wait_for_foreign_threads(0.0) else 1)
"""


def test_the_exit_waits_for_a_thread_that_is_about_to_enter_python():
    ended = subprocess.run([sys.executable, "-c", ENTERING], check=False, timeout=WITHIN_S)
    assert ended.returncode == 0


def test_the_exit_does_not_wait_for_other_threads():
    entered, release = _thread.allocate_lock(), _thread.allocate_lock()
    entered.acquire(), release.acquire()

    def other() -> None:
        entered.release()
        release.acquire()

    _thread.start_new_thread(other, ())
    entered.acquire()
    try:
        assert wait_for_foreign_threads(0.0)
    finally:
        release.release()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_hundred_commands_on_s3_end_with_zero(s3_server: str, tmp_path: Path):
    url = s3_server.format(name=f"exit-{os.getpid()}")
    (tmp_path / "lines").write_text("one\ntwo\n")
    command = [sys.executable, "-m", "tenure.cli.main", "buffer"]
    subprocess.run([*command, "produce", url, str(tmp_path / "lines")], check=True, timeout=WITHIN_S)
    codes = [
        subprocess.run([*command, "stat", url], capture_output=True, check=False, timeout=WITHIN_S).returncode
        for _ in range(100)
    ]
    assert codes == [0] * 100
