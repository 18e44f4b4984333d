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

_OURS: Final = frozenset({__file__, importlib.__file__})
_WORKER: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "worker", "")


class Unloadable(Exception):
    """The user's module failed while it was imported; the text is its traceback, without our own lines in it."""


def load_app(spec: str) -> App:
    """The app that ``MODULE:APP`` names; ``MODULE`` alone means its ``app``. Raises Invalid where it cannot be found,
    Unloadable where the module itself fails.
    """
    from tenure.worker.processes.importing import app_in

    name, _, attribute = spec.partition(":")
    return app_in(_imported(name, spec), attribute)


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
