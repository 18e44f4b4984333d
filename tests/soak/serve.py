"""`tenure serve` with a wall clock that can be moved: ``python -P tests/soak/serve.py SHIFT_FILE serve --data …``.

Everything else is the product as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from tenure.cli.main import main
    from tenure.http import service
    from tests.soak.clock import ShiftedClock

    shift_file = Path(sys.argv.pop(1))
    vars(service)["SystemClock"] = lambda: ShiftedClock(shift_file)
    main()
