"""Makes the graphs and the comparison of this folder importable by its tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
sys.path.insert(0, str(Path(__file__).parent))
