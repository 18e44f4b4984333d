"""`Telemetry`: OpenTelemetry spans around a put and around its handler, linked.

The put's span context travels as W3C ``traceparent`` (and ``tracestate``) in the record's ``meta``. A handler's span is
not its child but the root of a trace of its own, with a link: a job may be handled hours later and more than once, and
its producer's trace ended long before. That is what the semantic conventions for messaging ask for.

    app = App(url, middlewares=[Telemetry()])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tenure.extras import importing
from tenure.worker.context import Context
from tenure.worker.middleware import CallNext, Middleware, Put, PutNext
from tenure.worker.verdict import is_failure

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, TracerProvider

__all__ = ["Telemetry"]

_SCOPE: Final = "tenure"
_SYSTEM: Final = "tenure"


class Telemetry(Middleware):
    """Traces puts and handlers with ``tracer_provider``, or with the one that OpenTelemetry has been given globally.

    Raises Invalid where opentelemetry is not installed.
    """

    def __init__(self, *, tracer_provider: TracerProvider | None = None) -> None:
        with importing("spans need OpenTelemetry", "otel"):
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)

    async def put(self, put: Put, call_next: PutNext) -> list[int]:
        """Put a producer span around the append; every record of the call carries its context."""
        attributes = _attributes(put.queue, operation="put", kind="send")
        if len(put.records) != 1:
            attributes["messaging.batch.message_count"] = len(put.records)
        with self._tracer.start_as_current_span(
            f"put {put.queue}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
            for record in put.records:
                record.meta = {**(record.meta or {}), **carrier}
            try:
                seqs = await call_next(put)
            except BaseException as error:
                self._failed(span, error)
                raise
            if len(seqs) == 1:
                span.set_attribute("messaging.message.id", str(seqs[0]))
            return seqs

    async def handle(self, ctx: Context, call_next: CallNext) -> None:
        """Put a consumer span around the handler, linked to the put. The handler's own spans are its children."""
        from opentelemetry.context import Context as TraceContext

        attributes = _attributes(ctx.queue, operation="process", kind="process")
        attributes["messaging.message.id"] = str(ctx.seq)
        attributes["messaging.client.id"] = ctx.job.node
        attributes["tenure.deliveries"] = ctx.deliveries
        with self._tracer.start_as_current_span(
            f"process {ctx.queue}",
            context=TraceContext(),
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=self._links(ctx),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await call_next()
            except BaseException as error:
                self._failed(span, error)
                raise

    def _links(self, ctx: Context) -> list[Link]:
        """Return a link to the put's span, if the meta has a valid one; foreign values in the meta are ignored."""
        carrier = {name: value for name, value in ctx.meta.items() if isinstance(value, str)}
        found = self._trace.get_current_span(self._propagator.extract(carrier)).get_span_context()
        return [self._trace.Link(found)] if found.is_valid else []

    def _failed(self, span: Span, error: BaseException) -> None:
        """Mark a span as failed. Ack, Nack and Reject are verdicts, not failures."""
        if not is_failure(error):
            span.set_attribute("tenure.verdict", type(error).__name__.lower())
            return
        span.set_attribute("error.type", type(error).__qualname__)
        span.record_exception(error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, str(error)))


def _attributes(queue: str, *, operation: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
