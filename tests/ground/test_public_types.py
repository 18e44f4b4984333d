"""A type that a public call takes or returns can be imported from a public module, to annotate and to build it."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tenure.client.plan.handle import Method
from tests.ground.test_public_names import PUBLIC

# Public by their spelling only: the package itself calls them, and no user holds what they take.
INTERNAL = {
    "Answer": "its durability is the broker's own",
    "Collector.of": "a producer makes its collector of the manifest that it has read already",
    "Descriptor.of": "a fetch makes it of an entry of the manifest",
    "App.new_timers": "the worker opens the timers of its app",
    "Planned.commit": "the mover names the commit",
}

# Names of other packages within an alias, which are looked for where the alias is used.
OTHERS = {"DataFrame": object, "BaseSendableMessage": object}


def public_objects() -> Iterator[tuple[str, Any]]:
    for module in PUBLIC:
        loaded = importlib.import_module(module)
        yield from ((name, getattr(loaded, name)) for name in loaded.__all__)


OFFERED = [value for _, value in public_objects()]


@cache
def namespace(module: str) -> dict[str, Any]:
    """The names that annotations of a module may use, those that only a type checker imports among them."""
    loaded = importlib.import_module(module)
    names: dict[str, Any] = {**vars(typing), **vars(loaded)}
    for node in ast.parse(inspect.getsource(loaded)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec(ast.unparse(ast.Module(node.body, [])), names)
    return names


def calls_of(name: str, public: Any) -> Iterator[tuple[str, Any, Any]]:
    """The calls of a public name, each with the function that is called and the one that it was made of."""
    if inspect.isfunction(public):
        yield name, public, public
    if not inspect.isclass(public):
        return
    for owner in public.__mro__:
        if owner.__module__.startswith("tenure."):
            for attribute, value in vars(owner).items():
                if not attribute.startswith("_") and (made := function_of(value)) is not None:
                    is_plan = isinstance(value, Method)
                    yield f"{name}.{attribute}", getattr(public, attribute) if is_plan else made, made


def function_of(value: Any) -> Any:
    """The function behind an attribute of a class; of a call of a client, the plan that it is made of."""
    if isinstance(value, Method):
        return value.plan_function
    if isinstance(value, property):
        return value.fget
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    return value if inspect.isfunction(value) and not hasattr(value, "__signature__") else None


def hints_of(function: Any, made: Any) -> list[Any]:
    """The annotations of a call, apart from that of what it is called on."""
    names = {**OTHERS, **namespace("tenure.client"), **namespace(made.__module__), **namespace(function.__module__)}
    signature = inspect.signature(function)
    said = [parameter.annotation for name, parameter in signature.parameters.items() if name not in ("self", "cls")]
    given = {str(place): hint for place, hint in enumerate([*said, signature.return_annotation])}
    carrier = types.new_class("Carrier")
    carrier.__annotations__ = {place: hint for place, hint in given.items() if hint is not inspect.Signature.empty}
    return list(typing.get_type_hints(carrier, names).values())


def types_in(hint: Any) -> Iterator[type]:
    """Every class within an annotation."""
    if isinstance(hint, list | tuple):
        for part in hint:
            yield from types_in(part)
        return
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        yield hint
    origin = typing.get_origin(hint)
    if isinstance(origin, type):
        yield origin
    yield from types_in(typing.get_args(hint))


CALLS = {
    f"{public.__module__}:{where}": (function, made)
    for name, public in public_objects()
    for where, function, made in calls_of(name, public)
}


@pytest.mark.parametrize("where", sorted(CALLS))
def test_every_type_of_a_public_call_can_be_imported_from_a_public_module(where: str):
    if short(where) not in INTERNAL:
        met = {found for hint in hints_of(*CALLS[where]) for found in types_in(hint)}
        assert [found for found in met if is_hidden(found)] == []


def short(where: str) -> str:
    """The name without the module: two rooms may have a class of one name, and both are looked at."""
    return where.partition(":")[2]


def is_hidden(found: type) -> bool:
    return found.__module__.startswith("tenure.") and found not in OFFERED


STRUCTS = {
    f"{public.__module__}:{name}": public for name, public in public_objects() if hasattr(public, "__struct_fields__")
}


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_every_type_within_a_public_struct_can_be_imported_from_a_public_module(name: str):
    if short(name) not in INTERNAL:
        names: dict[str, Any] = {}
        for owner in reversed(STRUCTS[name].__mro__):
            names |= namespace(owner.__module__) if owner.__module__.startswith("tenure.") else {}
        hints = typing.get_type_hints(STRUCTS[name], names)
        met = {found for hint in hints.values() for found in types_in(hint)}
        assert [found for found in met if is_hidden(found)] == []


def test_what_is_excepted_is_still_there():
    assert INTERNAL.keys() <= set(map(short, [*CALLS, *STRUCTS]))
