"""What transfers cost is measured on transfers that really happen: between two servers, here of one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepd.hook import local_handling


@pytest.fixture
def addresses() -> Iterator[list[str]]:
    from tensorflow.python.training import server_lib

    servers = [server_lib.Server({"stepd": ["localhost:0"]}, job_name="stepd", task_index=0) for _ in range(2)]
    yield [str(server.target).removeprefix("grpc://") for server in servers]


def test_transfers_cost_something_and_bytes_do(addresses: list[str]) -> None:
    """Had TensorFlow folded or merged the transfers, nothing believable would come out (`LEAST`)."""
    cost = local_handling.measure(*addresses)
    assert cost is not None
    assert all(least <= value <= most for least, value, most in zip(local_handling.LEAST, cost, local_handling.MOST, strict=True))
