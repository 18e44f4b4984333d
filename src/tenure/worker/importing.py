"""An app by its name: how a worker tells its child processes what to import."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from tenure.errors import Invalid

if TYPE_CHECKING:
    from tenure.worker.app import App

__all__ = ["in_child", "load", "name_of"]

in_child = False
"""Whether this process is a worker's child, which must not become a worker itself by importing the app."""


def name_of(app: App) -> str:
    """``MODULE:APP``, by which another process finds the app. Raises Invalid where there is no such name."""
    modules = dict(sys.modules)
    main = modules.pop("__main__", None)
    for name, module in modules.items():
        attribute = _attribute(module, app)
        if attribute is not None:
            return f"{name}:{attribute}"
    attribute = None if main is None else _attribute(main, app)
    if main is None or attribute is None:
        raise Invalid(
            'run="process" needs an app that another process can import: keep it in a variable of a module, not within '
            "a function"
        )
    return f"{_name_of_main(main)}:{attribute}"


def _attribute(module: ModuleType, app: App) -> str | None:
    members = getattr(module, "__dict__", None) or {}
    return next((name for name, value in list(members.items()) if value is app), None)


def _name_of_main(main: ModuleType) -> str:
    """The name under which the script that was started could be imported."""
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    if file is not None:
        folder, script = os.path.split(os.path.abspath(file))
        stem = script.removesuffix(".py")
        if stem.isidentifier() and os.path.abspath(sys.path[0]) == folder:
            return str(stem)
    raise Invalid(
        'run="process" needs an app that another process can import: put it into a module and start it with '
        "`tenure worker MODULE:APP`"
    )


def load(name: str) -> App:
    """The app of that name. Raises Invalid where it is none, and what its module raises."""
    from tenure.worker.app import App

    module_name, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module_name), attribute, None)
    if not isinstance(found, App):
        raise Invalid(f"{name} is not a tenure.App")
    return found
