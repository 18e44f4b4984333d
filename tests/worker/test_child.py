"""The child process of a worker, seen from the other end of its pipe."""

from __future__ import annotations

import socket

import pytest

from tenure.worker.processes.child import Line
from tenure.worker.processes.frames import Ready


def test_a_child_whose_worker_is_gone_ends_without_a_traceback():
    here, there = socket.socketpair()
    there.close()
    line = Line(here)
    with here, line._file, pytest.raises(SystemExit) as ended:
        line.send(Ready())
    assert ended.value.code == 1
