"""What every floor of the tests shares: how hard Hypothesis looks, and which tests go to the same process."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.stores import s3_server  # noqa: F401 - a fixture: one server for all folders

# Wall time says nothing about correctness on a busy machine, so no example has a deadline.
settings.register_profile("default", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples on every run: a red build points at the change, not at the dice.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("full", settings.get_profile("default"), max_examples=2_000, print_blob=True)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell. What tests start would ignore Ctrl-C as well, and some send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.scheduling import OneSession

    return OneSession(config, log)
