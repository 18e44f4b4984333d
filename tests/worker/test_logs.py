"""What a worker's handlers log, for people and for programs."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import msgspec
import pytest

from tenure.logs import configure
from tenure.testing.app import AppTester
from tenure.worker.app import App
from tenure.worker.context import Context


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger of everything that is ours, left as it was found."""
    ours = logging.getLogger("tenure")
    before = ours.handlers[:], ours.level, ours.propagate
    yield ours
    ours.handlers[:], ours.level, ours.propagate = before


async def lines_of(log_format: str) -> str:
    app, stream = App(), io.StringIO()
    configure(log_format, stream=stream)

    @app.task("mail")
    async def mail(job: str, ctx: Context) -> None:
        ctx.logger.info("sent to %s", job)

    async with AppTester(app) as tester:
        await mail.put("ada")
        await tester.run_until_idle()
    return stream.getvalue()


@pytest.mark.usefixtures("logger")
async def test_a_line_in_json_tells_which_job_it_is_about():
    line = msgspec.json.decode(await lines_of("json"))
    assert {name: line[name] for name in ("logger", "queue", "seq", "attempt")} == {
        "logger": "tenure.task",
        "queue": "mail",
        "seq": 1,
        "attempt": 1,
    }
    assert line["message"].endswith("sent to ada")


@pytest.mark.usefixtures("logger")
async def test_a_line_of_text_begins_with_its_job_and_says_it_once():
    line = await lines_of("text")
    assert line.endswith("mail/1#1 sent to ada\n")
    assert line.count("mail") == 1
