"""`Handle`, the base of clients, queues and leases, and the descriptors that turn plan functions into its methods.

A method is written once, in the base that the blocking and the asynchronous kind share. To a type checker it is a
descriptor whose result depends on the kind; `ParamSpec` carries the arguments through. At run time each kind has a
plain function in its place, so that ``help``, `inspect` and mocks see an ordinary method.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload

from tenure.client.plan.drive import drive, drive_async
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import AsyncWire, Wire
from tenure.contract.options import expand_options

__all__ = ["Call", "Handle", "Method"]

T = TypeVar("T")
C = TypeVar("C")
W = TypeVar("W", bound=Wire | AsyncWire)
P = ParamSpec("P")


class Method(ABC):
    """A plan function that becomes a method of both kinds of handle.

    ``plan_function`` takes the handle's context as its first argument, and then the arguments of the caller.
    """

    def __init__(self, plan_function: Callable[..., Any]) -> None:
        self.plan_function = plan_function

    @abstractmethod
    def blocking_method(self) -> Callable[..., Any]:
        """Return the method of a blocking handle."""

    @abstractmethod
    def async_method(self) -> Callable[..., Any]:
        """Return the method of an asynchronous handle."""

    def return_type(self, plan_type: str, *, awaits: bool) -> str:
        """Return the type that the method returns, from the one that ``plan_function`` declares."""
        return plan_type.removeprefix("Plan[").removesuffix("]")

    def bind(self, owner: type, name: str, *, awaits: bool) -> Callable[..., Any]:
        """Return the method of one class, with the name, the docstring and the signature of the plan function."""
        method: Any = self.async_method() if awaits else self.blocking_method()
        signature = expand_options(self.plan_function)
        first, *rest = signature.parameters.values()
        parameters = [inspect.Parameter("self", first.kind), *rest]
        returns = self.return_type(str(signature.return_annotation), awaits=awaits)
        method.__signature__ = signature.replace(parameters=parameters, return_annotation=returns)
        method.__doc__ = self.plan_function.__doc__
        method.__module__, method.__name__, method.__qualname__ = owner.__module__, name, f"{owner.__qualname__}.{name}"
        return method  # type: ignore[no-any-return]


class Handle(Generic[W, C]):
    """A wire, and the context that the plans over it take as their first argument: a session, a queue or a lease.

    ``awaits`` in a class statement makes the class asynchronous, or blocking.
    """

    _awaits: ClassVar[bool]

    def __init__(self, wire: W, context: C) -> None:
        self._wire = wire
        self._context = context

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
    """A method that carries out a plan and returns its result, or a coroutine of it."""

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
