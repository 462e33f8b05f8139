"""The engine's examples and its properties use the same small clusters."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "properties"))
