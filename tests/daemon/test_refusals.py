"""Bad input over the real socket: a clear error each, nothing lost, nothing stopped."""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import sys

import grpc
import pytest

from stepd.v1 import operator_pb2, runtime_pb2, runtime_pb2_grpc


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"{not json", "not valid JSON"),
        ([1, 2], "JSON object"),
        ({"placement": {"no/such/op": "/job:worker/replica:0/task:1/device:CPU:0"}}, "no op 'no/such/op'"),
        ({"placement": {"left/op0": "/device:GPU:7"}}, "no device '/device:GPU:7'"),
        ({"placement": {}, "graph_fingerprint": "0" * 64}, "for another graph"),
        (
            {"placement": {"left/op0": "/job:worker/replica:0/task:1/device:CPU:0"}, "speed": 11},
            "unknown keys in the strategy: speed",
        ),
        ({"version": 1, "problem": "p", "placement": [0, 1], "priority": [0, 1]}, "no problem was planned"),
    ],
)
def test_strategies_that_cannot_be_meant(shared_daemon, shared_job, stepctl, tmp_path, document, message) -> None:
    file = tmp_path / "strategy.json"
    file.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    answer = stepctl(shared_daemon.socket, "activate", shared_job.job_id, str(file))
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert shared_job.activations == []


def test_unreadable_strategy_file(shared_daemon, shared_job, stepctl, tmp_path) -> None:
    answer = stepctl(shared_daemon.socket, "activate", shared_job.job_id, str(tmp_path / "none.json"))
    assert answer.code == 2
    assert "none.json: No such file" in answer.err


@pytest.mark.parametrize("command", [("show",), ("history",), ("rollback",), ("pause",), ("resume",), ("export-problem",)])
def test_unknown_job(shared_daemon, stepctl, command) -> None:
    answer = stepctl(shared_daemon.socket, *command, "nobody")
    assert answer.code == 4
    assert "no job 'nobody'" in answer.err


def test_nothing_to_roll_back(shared_daemon, shared_job, stepctl) -> None:
    answer = stepctl(shared_daemon.socket, "rollback", shared_job.job_id)
    assert answer.code == 1
    assert "own placement" in answer.err


def test_second_daemon_on_the_socket(shared_daemon) -> None:
    command = [sys.executable, "-m", "stepd.daemon.main", "serve", "--socket", str(shared_daemon.socket)]
    command += ["--state-dir", str(shared_daemon.state)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 1
    assert f"another stepd (pid {shared_daemon.process.pid}) serves {shared_daemon.socket}" in answer.stderr
    assert shared_daemon.process.poll() is None


@pytest.mark.parametrize("noise", [b"\x00" * 64, b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 512])
def test_malformed_bytes_on_the_socket(shared_daemon, shared_job, noise) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(shared_daemon.socket))
        stranger.sendall(noise)
        stranger.settimeout(20)
        try:
            while stranger.recv(4096):
                pass
        except ConnectionError:
            pass
    assert [other.id for other in shared_daemon.jobs()] == [shared_job.job_id]
    assert shared_daemon.jobs()[0].attached


NO_MESSAGE = b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("Runtime/Attach", "stepd.v1.HookMessage"),
        ("Operator/ActivateStrategy", "stepd.v1.ActivateRequest"),
        ("Operator/WatchJobs", "stepd.v1.ListJobsRequest"),
    ],
)
def test_bytes_that_are_no_message(shared_daemon, shared_job, method, expected) -> None:
    """A well-formed call whose body is none of ours ends that call alone, and says what was expected and what to do."""
    with grpc.insecure_channel(f"unix:{shared_daemon.socket}") as channel:
        call = channel.stream_stream(f"/stepd.v1.{method}")
        with pytest.raises(grpc.RpcError) as refused:
            list(call(iter([NO_MESSAGE]), timeout=20))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"/stepd.v1.{method}: 4 bytes came that are no {expected}" in refused.value.details()
    assert "update whichever of client and daemon is older" in refused.value.details()
    assert shared_daemon.jobs()[0].attached


def test_a_malformed_message_of_an_attached_hook_costs_only_itself(daemon, wait_until) -> None:
    hello = runtime_pb2.HookMessage(hello=runtime_pb2.Hello(job_id="x", job_name="noisy.py", protocol=1))
    opened = runtime_pb2.HookMessage(session_opened=runtime_pb2.SessionOpened(session_id="s1"))
    said: queue.Queue[bytes | None] = queue.Queue()
    for message in (hello.SerializeToString(), NO_MESSAGE, opened.SerializeToString()):
        said.put(message)
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        stream = channel.stream_stream("/stepd.v1.Runtime/Attach")(iter(said.get, None))
        welcome = runtime_pb2.DaemonMessage.FromString(next(stream))
        assert welcome.WhichOneof("message") == "welcome"
        wait_until("the next message is heard", lambda: daemon.jobs()[0].session)
        assert daemon.jobs()[0].attached
        said.put(None)
        assert list(stream) == []
    assert "malformed: dropped" in daemon.log()
    assert "4 bytes came that are no stepd.v1.HookMessage" in daemon.log()


@pytest.mark.parametrize(
    ("hello", "message"),
    [
        (runtime_pb2.HookMessage(heartbeat=runtime_pb2.Heartbeat()), "first message of a hook is Hello"),
        (runtime_pb2.HookMessage(hello=runtime_pb2.Hello(protocol=1)), "without a job_id"),
        (runtime_pb2.HookMessage(hello=runtime_pb2.Hello(job_id="x", protocol=9)), "speaks protocol 9"),
    ],
)
def test_hooks_that_are_refused(shared_daemon, hello, message) -> None:
    with grpc.insecure_channel(f"unix:{shared_daemon.socket}") as channel:
        stream = runtime_pb2_grpc.RuntimeStub(channel).Attach(iter([hello]), timeout=20)
        with pytest.raises(grpc.RpcError) as refused:
            list(stream)
    assert message in refused.value.details()


def test_damaged_profiles_and_graphs_cost_only_themselves(shared_daemon, shared_job, wait_until) -> None:
    shared_job.send(profile=runtime_pb2.StepProfile(session_id="s1", kind="train", run_metadata=b"\x01\x02"))
    shared_job.send(graph=runtime_pb2.GraphReport(session_id="s1", fingerprint="bad", graph_def=b"\xff\xff"))
    shared_job.send(profile=runtime_pb2.StepProfile(session_id="nobody", kind="train"))
    wait_until("both are refused", lambda: "profile refused" in shared_daemon.log() and "graph refused" in shared_daemon.log())
    assert shared_daemon.jobs()[0].attached


def test_unreachable_daemon(stepctl, tmp_path) -> None:
    answer = stepctl(tmp_path / "none.sock", "status")
    assert answer.code == 3
    assert "no stepd daemon answers" in answer.err


def test_pause_with_a_bad_time(shared_daemon, shared_job) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        request = operator_pb2.PauseRequest(job=shared_job.job_id, seconds=-1)
        shared_daemon.operator(lambda stub: stub.PauseJob(request, timeout=10))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
