"""Which job an operator means by a name or the beginning of an id."""

from __future__ import annotations

import pytest

from stepd.daemon.errors import NoSuchJobError
from stepd.daemon.jobs import Job, Registry
from stepd.v1 import runtime_pb2


def _registry(*jobs: tuple[str, str, float, bool]) -> Registry:
    """Of (id, name, last heard of, attached)."""
    registry = Registry()
    for job_id, name, seen, attached in jobs:
        registry.add(Job(job_id, runtime_pb2.Hello(job_id=job_id, job_name=name), seen, send=print if attached else None))
    return registry


def test_a_name_means_the_live_job_and_of_ended_ones_the_last() -> None:
    ended = (("a1", "train.py", 20.0, False), ("b2", "train.py", 30.0, False), ("c3", "train.py", 10.0, False))
    assert _registry(*ended).find("train.py").id == "b2"
    assert _registry(*ended, ("d4", "train.py", 5.0, True)).find("train.py").id == "d4"


def test_what_could_be_several_is_refused_with_all_of_them() -> None:
    live = _registry(("a1", "train.py", 1.0, True), ("b2", "train.py", 2.0, True), ("c3", "train.py", 3.0, False))
    with pytest.raises(NoSuchJobError, match="is 2 jobs: a1, b2"):
        live.find("train.py")
    prefixes = _registry(("ab1", "x", 1.0, False), ("ab2", "ab", 2.0, False))
    with pytest.raises(NoSuchJobError, match="is 2 jobs: ab1, ab2"):
        prefixes.find("ab")
    with pytest.raises(NoSuchJobError, match="no job 'y'"):
        prefixes.find("y")
