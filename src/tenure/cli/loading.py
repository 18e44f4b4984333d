"""Find a user's app by ``MODULE:APP``, from the directory that the command was started in.

What goes wrong here is the user's to mend, so it is told in their terms: no such module, no such name in it, not an
App; and where their module fails by itself, the lines of their own code that failed.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tenure.errors import Invalid

if TYPE_CHECKING:
    from tenure.worker.app import App

__all__ = ["Unloadable", "load_app", "their_lines"]

_APP: Final = "app"
_OURS: Final = frozenset({__file__, importlib.__file__})
_WORKER: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "worker", "")


class Unloadable(Exception):
    """The user's module failed while it was imported; the text is its traceback, without our own lines in it."""


def load_app(spec: str) -> App:
    """The app that ``MODULE:APP`` names; ``MODULE`` alone means its ``app``. Raises Invalid where it cannot be found,
    Unloadable where the module itself fails.
    """
    from tenure.worker.app import App

    name, _, attribute = spec.partition(":")
    found: object = _imported(name, spec)
    for part in (attribute or _APP).split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Invalid(f"module {name!r} has no {attribute or _APP!r}{_candidates(name)}") from None
    if not isinstance(found, App):
        raise Invalid(f"{spec!r} is {type(found).__name__}, not a tenure.App{_candidates(name)}")
    return found


def _imported(name: str, spec: str) -> ModuleType:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        hint = f": say {_as_module(name)}" if name.endswith(".py") else ""
        raise Invalid(f"{spec!r} does not name an app, which is written like shop.jobs:app{hint}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise Invalid(f"no module {error.name!r} in {here} or among what is installed") from None
        raise Unloadable(their_lines(error)) from None
    except Exception as error:
        raise Unloadable(their_lines(error)) from None
    except SystemExit as error:
        raise Invalid(f"module {name!r} left the program while it was imported (exit {error.code})") from None


def _as_module(path: str) -> str:
    return path.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".") + ":app"


def _candidates(name: str) -> str:
    """Which apps the module has after all."""
    from tenure.worker.app import App

    apps = sorted(key for key, value in vars(sys.modules[name]).items() if isinstance(value, App))
    return f"; it has {', '.join(f'{name}:{app}' for app in apps[:5])}" if apps else ""


def their_lines(error: BaseException) -> str:
    """The traceback of a user's module or hook, from where it begins to be theirs."""
    about = traceback.TracebackException.from_exception(error)
    theirs = [
        frame
        for frame in about.stack
        if not frame.filename.startswith(_WORKER)
        and frame.filename not in _OURS
        and not frame.filename.startswith("<frozen ")
    ]
    about.stack = traceback.StackSummary.from_list(theirs)
    return "".join(about.format()).rstrip()
