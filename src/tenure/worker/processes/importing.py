"""Import an app by its name, ``MODULE:APP``: for the command line, and in the child processes of a worker."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tenure.errors import Invalid

if TYPE_CHECKING:
    from tenure.worker.app import App

__all__ = ["app_in", "in_child", "load", "name_of"]

_APP: Final = "app"

in_child = False
"""Whether this process is a worker's child, which must not become a worker itself by importing the app."""


def name_of(app: App) -> str:
    """Return ``MODULE:APP``, by which another process can import the app. Raises Invalid where there is
    no such name.
    """
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
    """Return the name under which the main script can be imported. Raises Invalid where it has none."""
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
    """Import and return the app of that name. Raises Invalid where there is no such app, and what its module raises."""
    module_name, _, attribute = name.partition(":")
    return app_in(importlib.import_module(module_name), attribute)


def app_in(module: ModuleType, attribute: str) -> App:
    """Return the app of an imported module; its ``app`` where ``attribute`` is empty. Raises Invalid."""
    from tenure.worker.app import App

    found: object = module
    for part in (attribute or _APP).split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Invalid(f"module {module.__name__!r} has no {attribute or _APP!r}{_candidates(module)}") from None
    if not isinstance(found, App):
        name = f"{module.__name__}:{attribute or _APP}"
        raise Invalid(f"{name!r} is {type(found).__name__}, not a tenure.App{_candidates(module)}")
    return found


def _candidates(module: ModuleType) -> str:
    """List the apps that the module does have."""
    from tenure.worker.app import App

    apps = sorted(key for key, value in vars(module).items() if isinstance(value, App))
    return f"; it has {', '.join(f'{module.__name__}:{app}' for app in apps[:5])}" if apps else ""
