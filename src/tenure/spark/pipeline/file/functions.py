"""Load the Python functions that a pipeline file names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenure.errors import Invalid

__all__ = ["load_function"]


def load_function(name: str, *, beside: Path) -> Callable[[Any], Any]:
    """Return the function ``module:function``; the module may lie beside the pipeline file. Raises Invalid."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise Invalid(f"{name!r} is not of the form module:function")
    place = str(beside.absolute())
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module of the user's may raise anything
        raise Invalid(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    found = module
    for part in attribute.split("."):
        found = getattr(found, part, None)  # type: ignore[assignment]
    if found is None:
        raise Invalid(f"{module_name} has no {attribute}")
    if not callable(found):
        raise Invalid(f"{name} is not a function")
    return found
