"""Encode and decode payloads as JSON: Structs, dataclasses, TypedDicts, pydantic models, plain types. Never pickle.

The type is the annotation of the handler's first argument. msgspec decodes and validates in one pass; a pydantic model
is decoded by pydantic, also inside another type. Unknown fields are ignored, unless the type forbids them, so that
producers may be newer than workers.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from tenure.errors import Invalid
from tenure.worker.observing.reason import bounded

__all__ = ["Misfit", "Shape", "decoder_for", "encode", "shape_of"]

_SHOWN_BYTES_MAX: Final = 600
_ERRORS_SHOWN_MAX: Final = 5


class Misfit(Exception):
    """The payload does not fit the type of the handler; the message says what is wrong and where. ``field`` is the path
    of the first value that does not fit; None for the payload as a whole.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Shape(msgspec.Struct, frozen=True):
    """The parameters of a handler: how many, and the type of the first (Any without an annotation)."""

    arity: int
    payload: Any
    is_async: bool


def shape_of(handler: Callable[..., Any], names: dict[str, Any] | None = None) -> Shape:
    """Return the shape of ``()``, ``(payload)`` or ``(payload, ctx)``; anything else is Invalid.

    ``names`` are the locals around the function, for annotations that name one of them.
    """
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        raise Invalid(f"a task must be a function; got {handler!r}") from None
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) > 2 or any(parameter.kind not in plain for parameter in parameters):
        raise Invalid(f"{_name(handler)} must take (), (payload) or (payload, ctx)")
    called = _called(handler)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise Invalid(f"{_name(handler)} must not yield: nobody would go on with it")
    if parameters and parameters[0].name in ("self", "cls"):
        raise Invalid(f"{_name(handler)} must be a function or a bound method: app.task(queue)(object.method)")
    payload = _annotation(called, parameters[0], names) if parameters else None
    return Shape(len(parameters), payload, inspect.iscoroutinefunction(called))


def _called(handler: Any) -> Callable[..., Any]:
    """Return the function of a partial or a callable object, or the function itself."""
    while isinstance(handler, partial):
        handler = handler.func
    called: Callable[..., Any] = handler if inspect.isroutine(handler) else type(handler).__call__
    return called


def _annotation(handler: Callable[..., Any], parameter: inspect.Parameter, names: dict[str, Any] | None) -> Any:
    """Return the type of one parameter; only that annotation is resolved, as others may exist for type
    checkers only.
    """
    if parameter.annotation is parameter.empty:
        return Any
    holder = type("Holder", (), {"__annotations__": {"payload": parameter.annotation}})
    known = getattr(inspect.unwrap(getattr(handler, "__func__", handler)), "__globals__", {})
    try:
        return typing.get_type_hints(holder, known, names, include_extras=True)["payload"]
    except NameError as error:
        raise Invalid(
            f"the payload of {_name(handler)} is annotated {parameter.annotation!r}, and {error}:"
            " import it at run time, not only for type checkers"
        ) from None


def decoder_for(payload: Any, *, of: str = "the task") -> Callable[[bytes], Any]:
    """Return a decoder from JSON to ``payload`` that raises Misfit. Raises Invalid where JSON cannot
    express the type.
    """
    validate = _pydantic(payload)
    if validate is None:
        validate = _msgspec_decoder(payload, of)

    def decode(data: bytes) -> Any:
        try:
            return validate(data)
        except BaseException as error:  # of msgspec, of pydantic, and of a type's own validators
            raise Misfit(_misfit(error), field=_field(error)) from error

    return decode


def encode(value: Any, *, what: str = "the payload") -> bytes:
    """Return ``value`` as JSON. Raises Invalid where it has no JSON form."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"{what} cannot be written as JSON: {error}") from error


def _pydantic(payload: Any) -> Callable[[bytes], Any] | None:
    """Return pydantic's own decoder of a model or dataclass, or None; found without importing pydantic."""
    validator = getattr(payload, "__pydantic_validator__", None) if isinstance(payload, type) else None
    return validator.validate_json if validator is not None else None


def _msgspec_decoder(payload: Any, of: str) -> Callable[[bytes], Any]:
    try:
        _check(msgspec.inspect.type_info(payload), of)
        return msgspec.json.Decoder(payload, dec_hook=_within).decode
    except TypeError as error:
        raise Invalid(f"the payload of {of} cannot come from JSON: {error}") from error


def _check(info: Any, of: str) -> None:
    """Raise Invalid for a type that neither msgspec nor pydantic can decode: at the declaration, not at
    the first job.
    """
    seen: list[Any] = [info]
    known: set[type] = set()
    while seen:
        info = seen.pop()
        if isinstance(info, msgspec.inspect.CustomType) and _pydantic(info.cls) is None:
            raise Invalid(
                f"the payload of {of} cannot come from JSON: {info.cls.__name__} is no Struct, dataclass, TypedDict,"
                " pydantic model or plain type"
            )
        cls = getattr(info, "cls", None)
        if cls is not None:
            if cls in known:
                continue
            known.add(cls)
        for name in getattr(info, "__struct_fields__", ()):
            value = getattr(info, name)
            seen += value if isinstance(value, tuple) else [value] if isinstance(value, _INFO) else []


_INFO: Final = (msgspec.inspect.Type, msgspec.inspect.Field)


def _within(wanted: type, value: Any) -> Any:
    validator = getattr(wanted, "__pydantic_validator__", None)
    if validator is None:
        raise NotImplementedError
    return validator.validate_python(value)


def _encode_other(value: Any) -> Any:
    """Return a pydantic model as raw JSON for msgspec."""
    serializer = getattr(value, "__pydantic_serializer__", None)
    if serializer is None:
        raise TypeError(f"objects of type {type(value).__name__} are not supported")
    return msgspec.Raw(serializer.to_json(value, warnings=False))  # the decoder of the task checks the value


_encoder: Final = msgspec.json.Encoder(enc_hook=_encode_other)


def _misfit(error: BaseException) -> str:
    """Format an error in one line: msgspec's message, or the path and message of each pydantic error."""
    if isinstance(error, RecursionError):
        text = "nested too deeply"
    elif callable(getattr(error, "errors", None)):
        errors: list[dict[str, Any]] = error.errors(include_url=False)  # type: ignore[attr-defined]
        text = "; ".join(f"{_path(e['loc'])}: {e['msg']}" for e in errors[:_ERRORS_SHOWN_MAX])
    else:
        text = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return bounded(f"payload does not fit: {' '.join(text.split())}", _SHOWN_BYTES_MAX)


def _field(error: BaseException) -> str | None:
    """Return the path of the first wrong value, from the error of msgspec or pydantic."""
    if callable(getattr(error, "errors", None)):
        first: dict[str, Any] = error.errors(include_url=False)[0]  # type: ignore[attr-defined]
        return ".".join(map(str, first["loc"])) or None
    found = [match[1] for pattern in (_AT, _OF) if (match := pattern.search(str(error)))]
    return ".".join(found) or None


_AT: Final = re.compile(r"at `\$\.?([^`]+)`")
_OF: Final = re.compile(r"(?:required|unknown) field `([^`]+)`")


def _path(location: tuple[str | int, ...]) -> str:
    return ".".join(map(str, location)) or "$"


def _name(handler: Callable[..., Any]) -> str:
    return getattr(handler, "__qualname__", repr(handler))
