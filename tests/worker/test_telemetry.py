"""Spans from a put to its handler, as a collector would see them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tenure import TenureError
from tenure.worker.app import App
from tenure.worker.backends.queue import QueueBackend
from tenure.worker.observing.telemetry import Telemetry
from tenure.worker.processes.executors import LoopExecutor
from tenure.worker.runtime.delivery import Delivery
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.timing import SystemTiming
from tenure.worker.verdict import Nack, Verdict, VerdictKind
from tests.kit.server import Running, serving

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from tenure.errors import Invalid
from tenure.worker.observing.telemetry import Telemetry
try:
    Telemetry()
except Invalid as error:
    print(error.message)
"""


class Traced:
    """An app with telemetry, a task of one's own, and the spans that came of it."""

    def __init__(self, url: str, queue: str) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.app = App(url, middlewares=[Telemetry(tracer_provider=self.provider)])
        self.queue = queue
        self.error: BaseException | None = None

        @self.app.task(queue)
        async def work(job: dict[str, int]) -> None:
            with self.provider.get_tracer("user").start_as_current_span("inner"):
                if self.error is not None:
                    raise self.error

        self.task = work

    async def handle(self) -> list[Verdict | None]:
        """Claim what is there and handle it, as a worker does."""
        claimed = await self.app.client.claim(self.queue, max_count=100)
        delivery = Delivery(
            self.task,
            backend=QueueBackend(self.app.client, self.task.options, link=Link(self.app.url)),
            timing=SystemTiming(),
            executor=LoopExecutor(),
            settle=self._settle,
            middlewares=self.app.middlewares,
        )
        return [await delivery.handle(self._held(job)) for job in claimed.jobs]

    async def _settle(self, job: HeldJob, verdict: Verdict) -> bool:
        return True

    def _held(self, job: Any) -> HeldJob:
        deadline_ms = SystemTiming().now_ms() + 30_000
        meta = None if job.meta is None else bytes(job.meta)
        return HeldJob(
            topic=self.queue,
            seq=job.seq,
            lease_id=job.lease_id,
            node=self.app.client.node,
            data=bytes(job.data),
            meta=meta,
            deliveries=job.deliveries,
            deadline_ms=deadline_ms,
        )

    def span(self, name: str) -> ReadableSpan:
        [found] = self.spans(name)
        return found

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(Path(tmp_path_factory.mktemp("telemetry")) / "data") as running:
        yield running


@pytest.fixture
async def traced(server: Running, request: pytest.FixtureRequest) -> AsyncIterator[Traced]:
    traced = Traced(server.url, f"q-{abs(hash(request.node.name))}")
    async with traced.app:
        yield traced
    traced.provider.shutdown()


async def test_a_handlers_span_is_linked_to_the_span_of_its_put(traced: Traced):
    seq = await traced.task.put({"image": 1})
    await traced.handle()
    sent, processed = traced.span(f"put {traced.queue}"), traced.span(f"process {traced.queue}")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    [link] = processed.links
    assert (link.context.trace_id, link.context.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert processed.parent is None
    assert processed.context.trace_id != sent.context.trace_id
    assert sent.attributes is not None
    assert dict(sent.attributes) == {
        "messaging.system": "tenure",
        "messaging.destination.name": traced.queue,
        "messaging.operation.name": "put",
        "messaging.operation.type": "send",
        "messaging.message.id": str(seq),
    }
    assert processed.attributes is not None
    assert processed.attributes["messaging.operation.type"] == "process"
    assert processed.attributes["messaging.message.id"] == str(seq)
    assert processed.attributes["messaging.client.id"] == traced.app.client.node
    assert processed.attributes["tenure.deliveries"] == 1


async def test_the_context_travels_as_traceparent_in_the_meta_beside_what_the_caller_put_there(traced: Traced):
    with traced.provider.get_tracer("user").start_as_current_span("request") as request:
        seq = await traced.task.put({"image": 1}, meta={"tenant": "ada"})
    info = await traced.app.client.job(traced.queue, seq)
    assert info.meta is not None
    meta = msgspec.json.decode(info.meta)
    sent = traced.span(f"put {traced.queue}")
    assert meta["tenant"] == "ada"
    assert meta["traceparent"].startswith(f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-")
    assert sent.parent is not None
    assert sent.parent.span_id == request.get_span_context().span_id


async def test_spans_of_the_handler_are_children_of_its_own(traced: Traced):
    await traced.task.put({"image": 1})
    await traced.handle()
    inner, processed = traced.span("inner"), traced.span(f"process {traced.queue}")
    assert inner.parent is not None
    assert inner.parent.span_id == processed.context.span_id


async def test_many_jobs_of_one_put_are_all_linked_to_it(traced: Traced):
    await traced.task.put_many([{"image": number} for number in range(3)])
    await traced.handle()
    sent = traced.span(f"put {traced.queue}")
    assert sent.attributes is not None
    assert sent.attributes["messaging.batch.message_count"] == 3
    processed = traced.spans(f"process {traced.queue}")
    assert [span.links[0].context.span_id for span in processed] == [sent.context.span_id] * 3


async def test_a_failure_marks_the_span_and_a_verdict_does_not(traced: Traced):
    await traced.task.put_many([{"image": 1}])
    traced.error = ValueError("no such image")
    [verdict] = await traced.handle()
    assert verdict is not None
    assert verdict.kind is VerdictKind.NACK
    failed = traced.span(f"process {traced.queue}")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ValueError"
    traced.exporter.clear()

    await traced.task.put_many([{"image": 2}])
    traced.error = Nack("busy")
    await traced.handle()
    given_back = traced.span(f"process {traced.queue}")
    assert given_back.status.status_code is StatusCode.UNSET
    assert given_back.attributes is not None
    assert given_back.attributes["tenure.verdict"] == "nack"


async def test_a_put_that_is_refused_marks_its_span(traced: Traced):
    with pytest.raises(TenureError):
        await traced.task.put({"image": 1}, tag="x" * 1_000)
    assert traced.span(f"put {traced.queue}").status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("meta", [None, {}, {"traceparent": "nonsense"}, {"traceparent": 7}, {"tracestate": "a=b"}])
async def test_a_job_without_a_readable_context_is_handled_without_a_link(traced: Traced, meta: dict[str, Any] | None):
    await traced.app.declare()
    async with traced.app.new_client() as stranger:
        await stranger.queue(traced.queue).put({"image": 1}, meta=meta)
    assert await traced.handle()
    assert traced.span(f"process {traced.queue}").links == ()


async def test_a_blocking_put_is_traced_as_well(traced: Traced):
    await asyncio.to_thread(traced.task.blocking.put, {"image": 1})
    await traced.handle()
    assert len(traced.span(f"process {traced.queue}").links) == 1


def test_without_a_provider_of_its_own_it_asks_the_global_one():
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    Telemetry()


def test_without_opentelemetry_it_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "pip install 'tenure[otel]'" in done.stdout


def test_a_worker_that_uses_neither_looks_for_neither():
    code = (
        "import sys, tenure.worker.runtime.worker, tenure.worker.observing.telemetry\n"
        "print([name for name in ('opentelemetry', 'prometheus_client') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
