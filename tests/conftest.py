"""For all tests: kernels compiled from other sources are never met, not even by the programs that tests start."""

from __future__ import annotations

from stepd.kernels import cache

cache.use()
