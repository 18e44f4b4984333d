"""Decoding and validating request bodies.

msgspec checks syntax, types and bounds. What it does not check is checked here: bytes that are no UTF-8 inside a raw
slice or an ignored field, numbers beyond a u64, and a field of ours that was given twice (msgspec takes the last one,
others the first, and a proxy in between may have judged the other). All of it is Invalid; nothing is guessed.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from tenure.contract.fields import U64_MAX
from tenure.errors import Invalid
from tenure.http.wire.message import Body, Request

__all__ = [
    "U64_MAX",
    "Reader",
    "check_media",
    "check_wholes",
    "invalid_body",
    "is_plain_json",
    "struct_names",
    "twice",
]

_MESSAGE_CHARS_MAX: Final = 300

S = TypeVar("S", bound=msgspec.Struct)


class Reader(Generic[S]):
    """A decoder of one kind of body. Make one per schema, at import: it is used on every request.

    ``optional`` lets an empty body stand for ``{}``.
    """

    def __init__(self, schema: type[S], *, optional: bool = False) -> None:
        self.schema = schema
        self._decode = msgspec.json.Decoder(schema).decode
        self._optional = optional
        names = "|".join(re.escape(name) for name in sorted(struct_names(schema) - {"$topic"}))
        self._names = re.compile(f'"(?:{names})"'.encode()).finditer
        fields = msgspec.structs.fields(schema)
        self._wholes = [(field.name, field.encode_name) for field in fields if int in _leaves(field.type)]
        self._nested = [field.name for field in fields if any(_structs(field.type))]
        self._keyed = any(dict in _leaves(field.type) for field in fields)

    def read(self, request: Request) -> S:
        """Return the decoded body. Raises Invalid, with code ``unsupported_media_type`` for what is not plain JSON."""
        body = request.body
        if not body and self._optional:
            return self._decode(b"{}")
        check_media(request)
        if not is_plain_json(body):
            raise Invalid("the body is not valid UTF-8")
        try:
            parsed = self._decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise invalid_body(error) from None
        for name, shown in self._wholes:
            value = getattr(parsed, name)
            if value.__class__ is int and not -U64_MAX <= value <= U64_MAX:
                raise _too_long(shown)
        for name in self._nested:
            check_wholes(getattr(parsed, name), name)
        if self._keyed or b"\\" in body or self._repeats(body):
            self._check_twice(body)
        return parsed

    def _repeats(self, body: Body) -> bool:
        """Return whether a name of ours occurs twice, as a field or in a value; the cost is not that of the schema."""
        seen = set[bytes]()
        for found in self._names(body):
            name = found[0]
            if name in seen:
                return True
            seen.add(name)
        return False

    def _check_twice(self, body: Body) -> None:
        field = twice(body, self.schema)
        if field is not None:
            raise Invalid(f"{field} is given twice: give it once", field=field)


def check_media(request: Request) -> None:
    """Raise Invalid unless the headers declare the body as plain JSON."""
    headers = request.headers
    if request.body or "content-type" in headers:
        kind = headers.get("content-type", "")
        if kind != "application/json" and kind.partition(";")[0].strip().lower() != "application/json":
            raise Invalid("send the body with content-type: application/json", code="unsupported_media_type")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Invalid("send the body without content-encoding", code="unsupported_media_type")


def is_plain_json(body: Body) -> bool:
    """Return whether the bytes are UTF-8; a decoder that keeps raw slices does not check it."""
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_wholes(value: Any, path: str) -> None:
    """Raise Invalid where a number within an object is beyond a u64, which msgspec's own bounds do not reach."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            found = getattr(value, name)
            if found.__class__ is int and not -U64_MAX <= found <= U64_MAX:
                raise _too_long(f"{path}.{name}")
            check_wholes(found, f"{path}.{name}")


def invalid_body(error: Exception) -> Invalid:
    """Return the error for a body that could not be decoded; it names the field where there is one."""
    if isinstance(error, RecursionError):
        return Invalid("the body is nested too deeply")
    message = str(error)[:_MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode().replace("`", "")
    if not isinstance(error, msgspec.ValidationError):
        return Invalid(f"the body is not valid JSON: {message}")
    what, _, path = message.partition(" - at ")
    field = path.removeprefix("$").removeprefix(".")
    before, missing, name = what.partition("Object missing required field ")
    if missing and not before:
        field = f"{field}.{name}" if field else name
        return Invalid(f"{field} is missing", field=field)
    if not field:
        return Invalid(f"the body is not what is expected here: {what}")
    return Invalid(f"{field}: {what}", field=field)


def _too_long(field: str) -> Invalid:
    return Invalid(f"{field} must be a whole number from 0 to {U64_MAX}", field=field)


# Fields that are given twice


def struct_names(schema: type[msgspec.Struct]) -> set[str]:
    """Return every field name of ours in a schema, those of nested objects included."""
    names = set[str]()
    for field in msgspec.structs.fields(schema):
        names.add(field.encode_name)
        for nested in _structs(field.type):
            names |= struct_names(nested)
    return names


def twice(body: Body | str, schema: type[msgspec.Struct]) -> str | None:
    """Return the first field of ours that a body gives twice, or None. The body is valid JSON of that schema."""
    text = body if isinstance(body, str) else body.decode()
    try:
        # Numbers are not needed, and some would take long or raise: replace them by the length of their text.
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_int=len, parse_float=len)
    except RecursionError as error:
        raise invalid_body(error) from None
    return next(_twice(pairs, schema, ""), None)


class _Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object as its pairs, in the order of the text."""

    __slots__ = ()


def _twice(given: Any, kind: Any, path: str) -> Iterator[str]:
    if isinstance(given, _Pairs):
        known, values = _known(kind)
        seen = set[str]()
        for name, value in given:
            below = known.get(name, values)
            if below is None:
                continue
            if name in seen:
                yield f"{path}{name}"
            seen.add(name)
            if isinstance(value, _Pairs | list):
                yield from _twice(value, below, f"{path}{name}.")
    elif isinstance(given, list):
        for index, value in enumerate(given):
            if isinstance(value, _Pairs | list):
                yield from _twice(value, kind, f"{path[:-1]}[{index}].")


@cache
def _known(kind: Any) -> tuple[dict[str, Any], Any]:
    """Return the fields of ours that an object of this type has, and the type of all others if it is a mapping."""
    fields = [field for struct in _structs(kind) for field in msgspec.structs.fields(struct)]
    return {field.encode_name: field.type for field in fields}, _values_of(kind)


def _parts(kind: Any) -> Iterator[Any]:
    """Yield the parts of a type: the members of unions, annotated types and lists."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _parts(get_args(kind)[0])
    elif origin in (Union, types.UnionType, list):
        for part in get_args(kind):
            yield from _parts(part)
    else:
        yield kind


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    for part in _parts(kind):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            yield part


def _values_of(kind: Any) -> Any:
    """Return the type of a mapping's values, or None where the type is not a mapping: then only known names count."""
    return next((get_args(part)[1] for part in _parts(kind) if get_origin(part) is dict), None)


def _leaves(kind: Any) -> set[Any]:
    return {get_origin(part) or part for part in _parts(kind)}
