"""Keyword arguments that the same call of the broker and of the client takes, written once for type checkers.

At run time `declare_options` shows them in the signature of a function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict, TypeVar, get_type_hints

import msgspec

from tenure.contract.commands import Ack, AppendFields, Claim, RedriveFields, RouterFields

__all__ = [
    "AppendOptions",
    "ClaimOptions",
    "LeaseOptions",
    "RedriveOptions",
    "RouterOptions",
    "declare_options",
    "expand_options",
]


class AppendOptions(TypedDict, total=False):
    """Options of an append. A key, or a client's id and number, makes the call safe to repeat.

    ``create`` False raises NotFound where the topic is missing; ``config`` counts only where the call creates it.
    """

    node: str | None
    idempotency_key: str | None
    client_id: str | None
    client_seq: int | None
    create: bool
    config: Mapping[str, Any] | None


class ClaimOptions(TypedDict, total=False):
    """Options of a claim: how many jobs, for how long, and how long to wait for one.

    ``claim_id`` makes the claim safe to repeat; ``auto_ack`` deletes the jobs as they are handed out. ``isolate`` asks
    for a lease whose end without a verdict is no try; ``group`` names the processes that may die together, and
    ``suspects`` takes only jobs whose worker was lost before.
    """

    max_count: int
    lease_ms: int | None
    wait_ms: int
    claim_id: str | None
    auto_ack: bool
    isolate: bool
    group: str | None
    suspects: bool


class LeaseOptions(TypedDict, total=False):
    """The leases under which an ack, a nack or an extend finds its jobs.

    ``lease_ids`` has one lease id per seq; ``lease_id`` fences all seqs, or without seqs stands for everything that it
    still holds. ``strict`` raises LeaseLost and changes nothing where one job is not the caller's.
    """

    lease_ids: Sequence[str] | None
    lease_id: str | None
    strict: bool


class RedriveOptions(TypedDict, total=False):
    """Options of a redrive: another queue than the origin, and conditions, all of which a dead letter must meet.

    ``match`` is a condition on the tag, ``reason_like`` a part of the reason. ``reset_deliveries`` counts deliveries
    from zero again. ``dry_run`` moves nothing, and answers what would go where.
    """

    to: str | None
    match: Any
    reason_like: str | None
    limit: int | None
    reset_deliveries: bool
    dry_run: bool


class RouterOptions(TypedDict, total=False):
    """Options of a router: what a copy keeps, and which records are copied. ``filter`` is a condition on the tag."""

    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: Any
    allow_cycle: bool


_COMMANDS: Final[dict[Any, type[msgspec.Struct]]] = {
    AppendOptions: AppendFields,
    ClaimOptions: Claim,
    LeaseOptions: Ack,
    RedriveOptions: RedriveFields,
    RouterOptions: RouterFields,
}
"""The command that has the defaults of the options."""

F = TypeVar("F", bound=Callable[..., Any])


def declare_options(function: F) -> F:
    """Set the signature of a function that takes ``**options: Unpack[...]`` to one that names each option.

    So ``help``, `inspect` and mocks see every name. The function itself is not wrapped.
    """
    function.__signature__ = expand_options(function)  # type: ignore[attr-defined]
    return function


def expand_options(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function with the keys of a TypedDict in the place of ``**options``.

    Their defaults are those of the command; ``...`` where there is none.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    return signature.replace(parameters=[each for one in parameters for each in _expand(one, function)])


def _expand(parameter: inspect.Parameter, function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    if parameter.kind is not parameter.VAR_KEYWORD:
        yield parameter
        return
    options = function.__globals__[parameter.annotation.removeprefix("Unpack[").removesuffix("]")]
    command = _COMMANDS.get(options)
    defaults = {} if command is None else {field.name: field.default for field in msgspec.structs.fields(command)}
    for name, kind in get_type_hints(options).items():
        default = defaults.get(name, ...)
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
