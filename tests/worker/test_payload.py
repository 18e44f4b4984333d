"""What a handler takes decides how its payload is read; what does not fit is said in a line, never raised at it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from tenure.errors import Invalid
from tenure.worker.payload import Misfit, decoder_for, encode, shape_of

if TYPE_CHECKING:
    from collections import OrderedDict


class Email(msgspec.Struct):
    to: str
    copies: int = 1


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    to: str


@dataclasses.dataclass
class Order:
    id: int
    lines: list[str] = dataclasses.field(default_factory=list)


class Row(TypedDict):
    id: int
    name: str


class Model(pydantic.BaseModel):
    id: int
    kind: Literal["a", "b"] = "a"


class StrictModel(pydantic.BaseModel, extra="forbid"):
    id: int


@pydantic.dataclasses.dataclass
class Checked:
    id: int = pydantic.Field(gt=0)


@dataclasses.dataclass
class Outer:
    model: Model
    email: Email | None = None


class Color(Enum):
    RED = "red"


ROUND_TRIPS: list[tuple[Any, Any]] = [
    (Email, Email("a@b", 2)),
    (Order, Order(1, ["x"])),
    (Row, {"id": 1, "name": "n"}),
    (Model, Model(id=1, kind="b")),
    (Checked, Checked(1)),
    (Outer, Outer(Model(id=2), Email("c"))),
    (list[Model], [Model(id=3)]),
    (Model | None, None),
    (dict[str, list[int]], {"a": [1, 2]}),
    (Email | None, None),
    (int, 7),
    (str, "é"),
    (bytes, b"\x00\xff"),
    (None, None),
    (datetime, datetime(2026, 1, 2, tzinfo=UTC)),
    (UUID, UUID(int=5)),
    (Decimal, Decimal("1.50")),
    (Color, Color.RED),
    (tuple[int, str], (1, "a")),
    (Any, {"free": [1, None, "x"]}),
]


@pytest.mark.parametrize(("kind", "value"), ROUND_TRIPS, ids=lambda part: str(part)[:40])
def test_a_payload_comes_back_as_it_was_put(kind: Any, value: Any):
    assert decoder_for(kind)(encode(value)) == value


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (Email, b'{"copies": 1}', "payload does not fit: Object missing required field `to`"),
        (Email, b'{"to": 5}', "payload does not fit: Expected `str`, got `int` - at `$.to`"),
        (Email, b"[]", "payload does not fit: Expected `object`, got `array`"),
        (Email, b"{", "payload does not fit: Input data was truncated"),
        (Strict, b'{"to": "a", "cc": "b"}', "payload does not fit: Object contains unknown field `cc`"),
        (Order, b'{"id": "1"}', "payload does not fit: Expected `int`, got `str` - at `$.id`"),
        (Row, b'{"id": 1}', "payload does not fit: Object missing required field `name`"),
        (Model, b"{}", "payload does not fit: id: Field required"),
        (Model, b'{"id": 1, "kind": "c"}', "payload does not fit: kind: Input should be 'a' or 'b'"),
        (StrictModel, b'{"id": 1, "x": 2}', "payload does not fit: x: Extra inputs are not permitted"),
        (Checked, b'{"id": 0}', "payload does not fit: id: Input should be greater than 0"),
        (int, b'"1"', "payload does not fit: Expected `int`, got `str`"),
        (None, b"{}", "payload does not fit: Expected `null`, got `object`"),
        (Any, b"[" * 100_000, "payload does not fit: nested too deeply"),
    ],
)
def test_a_payload_that_does_not_fit_is_a_misfit_that_says_where(kind: Any, data: bytes, said: str):
    with pytest.raises(Misfit) as misfit:
        decoder_for(kind)(data)
    assert str(misfit.value) == said


def test_a_pydantic_model_within_another_type_is_read_by_pydantic():
    with pytest.raises(Misfit, match=r"Input should be a valid integer"):
        decoder_for(Outer)(b'{"model": {"id": "x"}}')


@pytest.mark.parametrize("kind", [Email, Order, Model, Row])
def test_fields_that_a_type_does_not_know_are_left_aside(kind: Any):
    assert decoder_for(kind)(b'{"to": "a", "id": 1, "name": "n", "new": [1]}')


def test_a_type_whose_own_check_raises_anything_makes_a_misfit_too():
    class Awkward(msgspec.Struct):
        id: int

        def __post_init__(self) -> None:
            raise KeyError("nobody expects this")

    with pytest.raises(Misfit, match="KeyError: 'nobody expects this'"):
        decoder_for(Awkward)(b'{"id": 1}')


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_a_check_that_would_end_the_process_makes_a_misfit_and_no_more(raised: BaseException):
    class Poison(msgspec.Struct):
        a: int

        def __post_init__(self) -> None:
            raise raised

    with pytest.raises(Misfit, match=type(raised).__name__):
        decoder_for(Poison)(b'{"a":1}')


def test_a_long_complaint_is_cut():
    with pytest.raises(Misfit) as misfit:
        decoder_for(Model)(b'{"kind": "%b"}' % (b"9" * 9_000))
    assert len(str(misfit.value).encode()) <= 600


class Opaque:
    pass


@dataclasses.dataclass
class Holding:
    inner: dict[str, list[Opaque]]


@pytest.mark.parametrize("kind", [Opaque, list[Opaque], Holding, Callable[[], None], complex])
def test_a_type_that_no_json_can_be_is_refused_when_the_task_is_declared(kind: Any):
    with pytest.raises(Invalid, match="cannot come from JSON"):
        decoder_for(kind)


@pytest.mark.parametrize("value", [Opaque(), {"a": Opaque()}, [Model.model_construct(id=Opaque())], "\ud800"])
def test_a_value_that_has_no_json_form_is_refused_before_it_is_sent(value: Any):
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        encode(value)


# Shapes


async def nothing() -> None: ...
async def payload_only(job: Email) -> None: ...
async def both(job: Email, ctx: OrderedDict[str, str]) -> None: ...
def untyped(job): ...


async def with_more(more: str, job: Email) -> None: ...


class CallableObject:
    async def __call__(self, job: Email) -> None: ...

    def method(self, job: Order) -> None: ...


@pytest.mark.parametrize(
    ("handler", "arity", "payload", "is_async"),
    [
        (nothing, 0, None, True),
        (payload_only, 1, Email, True),
        (both, 2, Email, True),
        (untyped, 1, Any, False),
        (CallableObject(), 1, Email, True),
        (CallableObject().method, 1, Order, False),
        (lambda job, ctx: None, 2, Any, False),
        (partial(with_more, "x"), 1, Email, True),
    ],
)
def test_the_shape_of_a_handler_is_read_from_its_signature(handler: Any, arity: int, payload: Any, is_async: bool):
    shape = shape_of(handler)
    assert (shape.arity, shape.payload, shape.is_async) == (arity, payload, is_async)


def test_annotations_may_name_what_stands_around_the_function():
    class Local(msgspec.Struct):
        id: int

    def handle(job: list[Local]) -> None: ...

    assert shape_of(handle, locals()).payload == list[Local]


def test_an_annotation_that_exists_for_type_checkers_only_is_refused_with_the_remedy():
    def handle(job: OrderedDict[str, str]) -> None: ...

    with pytest.raises(Invalid, match="import it at run time"):
        shape_of(handle)


def three(a: int, b: int, c: int) -> None: ...
def keyword(*, job: int) -> None: ...
def gathering(*jobs: int) -> None: ...


def yielding(job: int) -> Iterator[int]:
    yield job


async def yielding_later(job: int) -> AsyncIterator[int]:
    yield job


@pytest.mark.parametrize(
    "handler", [three, keyword, gathering, yielding, yielding_later, CallableObject.method, 5, "send"]
)
def test_other_shapes_are_refused(handler: Any):
    with pytest.raises(Invalid, match="must"):
        shape_of(handler)
