"""Which Python Spark starts on this machine: the one that runs this, with the pyspark that is installed.

Spark names its own archives of pyspark before everything else on the path. Python keeps no compiled form of what it
imports from an archive, so that every process of Spark's would compile pyspark anew: about 0.9 s, which a streaming
query pays before its first micro-batch. What Spark gets from us is a script that takes the archives off the path and
becomes the real Python.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
from pathlib import Path
from typing import Final

from tenure.spark.session.scripts import kept_script

__all__ = ["interpreter"]

_SCRIPT: Final = """\
#!/bin/sh
# Made by tenure; may be deleted at any time.
export PYTHONPATH="${{PYTHONPATH#*/python/lib/pyspark.zip:*/python/lib/py4j-*-src.zip:}}"
exec {python} "$@"
"""


def interpreter() -> str:
    """What PYSPARK_PYTHON is to be for a local Spark."""
    if not _is_installed():
        return sys.executable
    script = _SCRIPT.format(python=shlex.quote(sys.executable))
    return str(kept_script("python", script) / "python")


def _is_installed() -> bool:
    """Whether every process finds the pyspark of this one, without the archives."""
    import pyspark

    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return str(Path(pyspark.__file__).parents[1]) in {*site.getsitepackages(), *named}
