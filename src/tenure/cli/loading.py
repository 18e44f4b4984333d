"""Import a user's app by ``MODULE:APP``, from the current directory.

Errors are reported in the user's terms: no such module, no such name in it, not an App; and where the module itself
fails, the traceback of the user's own code. `tenure.worker.processes.importing` finds the app in the module.
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

__all__ = ["Unloadable", "load_app", "user_traceback"]

_OURS: Final = frozenset({__file__, importlib.__file__})
_WORKER: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "worker", "")


class Unloadable(Exception):
    """The user's module failed while it was imported; the text is its traceback, without the frames of Tenure."""


def load_app(spec: str) -> App:
    """Return the app that ``MODULE:APP`` names; ``MODULE`` alone means its ``app``. Raises Invalid where it cannot be
    found, Unloadable where the module itself fails.
    """
    from tenure.worker.processes.importing import app_in

    name, _, attribute = spec.partition(":")
    return app_in(_import_module(name, spec), attribute)


def _import_module(name: str, spec: str) -> ModuleType:
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
            hint = f": say {_as_module(name)}" if name.endswith(".py") else ""
            raise Invalid(f"no module {error.name!r} in {here} or among what is installed{hint}") from None
        raise Unloadable(user_traceback(error)) from None
    except Exception as error:
        raise Unloadable(user_traceback(error)) from None
    except SystemExit as error:
        raise Invalid(f"module {name!r} left the program while it was imported (exit {error.code})") from None


def _as_module(path: str) -> str:
    return path.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".") + ":app"


def user_traceback(error: BaseException) -> str:
    """Format the traceback of a user's module or hook, without the frames of Tenure and of importlib."""
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
