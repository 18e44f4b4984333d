"""`Handle`: what a user holds of either kind, and the descriptors that make its methods.

A method is written once, in the base that both kinds share. To a type checker it is a descriptor that gives one thing
on a blocking handle and another on an asynchronous one; `ParamSpec` carries the arguments through. At run time a plain
function takes its place in each kind, so that ``help``, `inspect` and mocks see what they see of any method.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload

from tenure.client.plan.drive import drive, drive_async
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import AsyncWire, Wire

__all__ = ["Call", "Handle", "Method"]

T = TypeVar("T")
C = TypeVar("C")
W = TypeVar("W", bound=Wire | AsyncWire)
P = ParamSpec("P")


class Method(ABC):
    """What becomes a method of both kinds: of ``made``, which takes the handle's session and what the caller gives."""

    def __init__(self, plan_function: Callable[..., Any]) -> None:
        self.plan_function = plan_function

    @abstractmethod
    def blocking_method(self) -> Callable[..., Any]:
        """The method of a blocking handle."""

    @abstractmethod
    def async_method(self) -> Callable[..., Any]:
        """The method of an asynchronous handle."""

    def returns(self, said: str, *, awaits: bool) -> str:
        """What the method gives, by what ``made`` says that it returns."""
        return said.removeprefix("Plan[").removesuffix("]")

    def bind(self, owner: type, name: str, *, awaits: bool) -> Callable[..., Any]:
        """The method as it stands in a class; it looks like what it does."""
        method: Any = self.async_method() if awaits else self.blocking_method()
        said = inspect.signature(self.plan_function)
        first, *rest = said.parameters.values()
        itself = inspect.Parameter("self", first.kind)
        returns = self.returns(str(said.return_annotation), awaits=awaits)
        method.__signature__ = said.replace(parameters=[itself, *rest], return_annotation=returns)
        method.__doc__ = self.plan_function.__doc__
        method.__module__, method.__name__, method.__qualname__ = owner.__module__, name, f"{owner.__qualname__}.{name}"
        return method  # type: ignore[no-any-return]


class Handle(Generic[W, C]):
    """A wire, and the first argument of the plans that go over it. ``awaits`` in a class statement says which kind."""

    _awaits: ClassVar[bool]

    def __init__(self, wire: W, session: C) -> None:
        self._wire = wire
        self._context = session

    def __init_subclass__(cls, *, awaits: bool | None = None) -> None:
        super().__init_subclass__()
        if awaits is None:
            return
        cls._awaits = awaits
        for base in reversed(cls.__mro__):
            for name, method in list(vars(base).items()):
                if isinstance(method, Method):
                    setattr(cls, name, method.bind(cls, name, awaits=awaits))


class Call(Method, Generic[C, P, T]):
    """A plan, carried out: the method gives its result, or is awaited for it."""

    if TYPE_CHECKING:

        def __init__(self, plan_function: Callable[Concatenate[C, P], Plan[T]]) -> None: ...

        @overload
        def __get__(
            self, instance: None, owner: type[Handle[Wire, C]]
        ) -> Callable[Concatenate[Handle[Wire, C], P], T]: ...
        @overload
        def __get__(
            self, instance: None, owner: type[Handle[AsyncWire, C]]
        ) -> Callable[Concatenate[Handle[AsyncWire, C], P], Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, instance: Handle[Wire, C], owner: type) -> Callable[P, T]: ...
        @overload
        def __get__(self, instance: Handle[AsyncWire, C], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, instance: Any, owner: type) -> Any: ...

    def blocking_method(self) -> Callable[..., Any]:
        plan = self.plan_function

        def method(self: Handle[Wire, Any], *args: Any, **options: Any) -> Any:
            return drive(self._wire, plan(self._context, *args, **options))

        return method

    def async_method(self) -> Callable[..., Any]:
        plan = self.plan_function

        async def method(self: Handle[AsyncWire, Any], *args: Any, **options: Any) -> Any:
            return await drive_async(self._wire, plan(self._context, *args, **options))

        return method
