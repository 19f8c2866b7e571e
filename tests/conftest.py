"""For all tests: kernels compiled from other sources are never met, not even by the programs that tests start.

Property tests draw the same cases in every run, so that a commit is judged by what it changed; others are drawn with
HYPOTHESIS_PROFILE=explore.
"""

from __future__ import annotations

import os

from hypothesis import settings

from stepd.kernels import cache

cache.use()
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
