"""What transfers cost is measured on transfers that really happen: between two servers, here of one process of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")

from stepd.hook import local_handling

MEASURED = """
import json
from tensorflow.python.training import server_lib
from stepd.hook import local_handling
servers = [server_lib.Server({"stepd": ["localhost:0"]}, job_name="stepd", task_index=0) for _ in range(2)]
print(json.dumps(local_handling.measure(*(str(server.target).removeprefix("grpc://") for server in servers))))
"""


def test_transfers_cost_something_and_bytes_do() -> None:
    """Had TensorFlow folded or merged the transfers, nothing believable would come out (`LEAST`)."""
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, timeout=300, check=True)
    cost = json.loads(done.stdout.splitlines()[-1])
    assert cost is not None
    assert all(least <= value <= most for least, value, most in zip(local_handling.LEAST, cost, local_handling.MOST, strict=True))
