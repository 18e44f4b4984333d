"""`make quick`: the units of every room, in one or two processes that start no other and listen nowhere.

`python -m tests.quick` runs pytest on what is listed here. The list is the only place: a directory brings all of its
tests but those left out below, which start processes or servers, need Spark, Redis or a browser, or take seconds.
As a plugin of pytest the module holds them to that: a test that starts a process or binds a socket fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import pytest

__all__ = ["LEFT_OUT", "PATHS"]

PATHS: Final = (
    *("tests/contract", "tests/core", "tests/log", "tests/broker", "tests/model", "tests/testing", "tests/objects"),
    *("tests/buffer", "tests/worker", "tests/export", "tests/http", "tests/bench", "tests/backup", "tests/chain"),
    *(f"tests/client/test_{name}.py" for name in ("config", "endpoint", "endpoints", "lanes", "batcher")),
    *(f"tests/client/test_{name}.py" for name in ("resuming", "retry", "sse")),
    *(f"tests/timers/test_{name}.py" for name in ("envelope", "reference", "faststream_testing")),
    *(f"tests/cli/test_{name}.py" for name in ("reference", "buffer_costs")),
    *(f"tests/spark/test_{name}.py" for name in ("toml_lines", "perfect_hash", "source_options", "retrying")),
    "tests/docs/test_faults.py",
    "tests/ground/test_public_names.py",
)
LEFT_OUT: Final = (
    *(f"tests/chain/model/test_{name}.py" for name in ("protocol", "variants")),
    *(f"tests/log/test_{name}.py" for name in ("crashes", "failures", "fuzz_frames", "threads")),
    "tests/log/test_disk.py::test_the_lock_of_a_killed_process_is_free",
    "tests/broker/test_rebuild.py",
    "tests/broker/test_checkpoints.py",
    "tests/broker/test_bases.py::test_another_process_makes_the_bases_too",
    *(f"tests/model/test_{name}.py" for name in ("queue_machine", "topic_machine", "soak")),
    "tests/testing/test_plugin.py",
    *(f"tests/objects/test_{name}.py" for name in ("cloud_exit", "contract")),
    *(f"tests/buffer/test_{name}.py" for name in ("contract", "every_call", "ingest_events", "outage", "processes")),
    "tests/buffer/test_producers.py",
    "tests/buffer/test_full_disk.py::test_a_produce_that_finds_no_room_was_not_written_and_goes_in_once_there_is_some",
    "tests/objects/test_create.py::test_the_conflict_of_a_real_client_on_an_empty_key_is_not_stored",
    "tests/objects/test_probe.py::test_a_fair_store_passes_and_nothing_stays_there",
    "tests/buffer/test_ingest.py::test_a_kill_around_the_commit_of_the_sink_leaves_everything_exactly_once",
    *(
        f"tests/worker/test_{name}.py"
        for name in ("app_over_http", "metrics", "metrics_live", "periodic_live", "several_servers")
    ),
    *(f"tests/worker/test_{name}.py" for name in ("first_puts", "status_page", "telemetry", "types_for_users")),
    "tests/worker/test_periodic.py::test_a_fleet_with_wrong_clocks_fires_each_tick_once_and_never_before_its_time",
    *(f"tests/export/test_{name}.py" for name in ("exporter", "serving")),
    "tests/backup/test_under_load.py",
    *(
        f"tests/http/test_{name}.py"
        for name in ("door", "fuzz_protocol", "h2", "h2_head", "headers", "limits", "memory")
    ),
    *(f"tests/http/test_{name}.py" for name in ("neighbours", "protocol", "reading_turns", "serve", "streams_live")),
    "tests/http/test_unsent.py",
    "tests/http/test_parse_cost.py",
    "tests/http/test_append_body.py::test_no_body_costs_much_at_once_or_in_all",
    "tests/http/test_exposure.py::test_a_server_warns_when_it_starts_and_when_keys_are_read_again",
    "tests/http/test_meta.py::test_records_cross_a_real_socket_to_the_byte",
    "tests/log/test_frame.py::test_a_frame_across_the_border_of_two_reads_is_found",
    "tests/client/test_batcher.py::test_a_batch_costs_the_same_however_many_were_sent_before_it",
    "tests/client/test_lanes.py::test_a_forked_process_has_lanes_of_its_own",
    "tests/client/test_lanes.py::test_the_broker_keeps_a_mark_per_lane_and_not_per_put",
)
_FORBIDDEN: Final = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "socket.bind")
_running = False


def _forbid(event: str, _: object) -> None:
    if _running and event in _FORBIDDEN:
        raise RuntimeError(f"{event} in a quick test: leave it out in tests/quick.py")


def pytest_configure() -> None:
    """Watch what the interpreter does. An audit hook cannot be removed, so it looks at a flag."""
    sys.addaudithook(_forbid)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Forbid processes and servers from the first fixture of a test to its last."""
    global _running
    _running = True
    yield
    _running = False


def options() -> list[str]:
    """Return the arguments of pytest that select these tests."""
    files = [f"--ignore={name}" for name in LEFT_OUT if "::" not in name]
    tests = [f"--deselect={name}" for name in LEFT_OUT if "::" in name]
    return ["-p", "tests.quick", *files, *tests, *PATHS]


if __name__ == "__main__":
    sys.exit(pytest.main([*options(), *sys.argv[1:]]))
