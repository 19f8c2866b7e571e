"""Joining the workers of --local-devices, without TensorFlow: what workers are asked, and what a plain session's error text is."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from stepd.hook import local_devices
from stepd.hook.local_devices import LocalCluster


def test_without_the_launcher_there_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPD_LOCAL_DEVICES", raising=False)
    assert local_devices.local_cluster() is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("From /job:localhost/replica:0/task:2:\nindices = 7\n\t [[{{node bad}}]]", "indices = 7\n\t [[{{node bad}}]]"),
        (
            "indices = 7\n\t [[{{node bad}}]]\nAdditional GRPC error information from remote target /job:localhost/task:0 "
            "while calling /tensorflow.WorkerService/RecvTensor:\n:UNKNOWN:Error {grpc_status:3}\n\t [[bad_S27]]",
            "indices = 7\n\t [[{{node bad}}]]",
        ),
        (
            "\n=====================\nINVALID_ARGUMENT: From /job:localhost/replica:0/task:2:\nindices = 7\n\t [[{{node bad}}]]\n"
            "Additional GRPC error information from remote target /job:localhost/task:0 while calling /tensorflow.WorkerService/"
            "RecvTensor:\n:UNKNOWN:Error {grpc_status:3}\n\t [[bad_S23]]\nINVALID_ARGUMENT: From /job:localhost/replica:0/task:0:\n"
            "indices = 7\n\t [[{{node bad}}]]\n=====================\n",
            "indices = 7\n\t [[{{node bad}}]]",
        ),
        (
            "\n=====================\nINVALID_ARGUMENT: From /job:localhost/replica:0/task:1:\nindices = 7\n\t [[{{node bad}}]]\n"
            "Additional GRPC error information from remote target /job:localhost/task:0 while calling /tensorflow.WorkerService/"
            "RecvTensor:\n:UNKNOWN:Error {grpc_status:3}\n\t [[bad_S23]]\nCANCELLED: From /job:localhost/replica:0/task:2:\n"
            "RecvFromRemoteAsync is cancelled.\n\t [[{{node add_S281}}]]\n=====================\n",
            "indices = 7\n\t [[{{node bad}}]]",
        ),
        ("Operation timed out.", "Timed out waiting for notification"),
        ("the user's own text: From /job:ps/task:1:\n", "the user's own text: From /job:ps/task:1:\n"),
    ],
)
def test_error_texts_are_those_of_a_plain_session(text: str, plain: str) -> None:
    assert LocalCluster.plain_error_text(text) == plain


def test_only_what_changes_results_is_asked_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("SECRET", "x")
    asked = local_devices.relevant_environment()
    assert asked["TF_ENABLE_ONEDNN_OPTS"] == "0"
    assert "SECRET" not in asked
    assert all(name in os.environ for name in asked)


def test_a_worker_that_starts_again_is_asked_again(tmp_path: Path) -> None:
    """The first connection is closed without an answer, as by a worker that takes over another environment."""
    path = str(tmp_path / "w.sock")
    requests: list[dict[str, object]] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(2)

    def worker() -> None:
        for answer in (b"", b'{"address": "localhost:1"}'):
            connection, _ = listener.accept()
            with connection:
                requests.append(json.loads(b"".join(iter(lambda c=connection: c.recv(4096), b""))))
                connection.sendall(answer)

    thread = threading.Thread(target=worker)
    thread.start()
    assert local_devices.ask(path, {"folder": "/"}, time.monotonic() + 60.0) == "localhost:1"
    thread.join(60.0)
    listener.close()
    assert requests == [{"folder": "/"}] * 2


@pytest.mark.parametrize(
    ("answer", "cost"),
    [
        (b'{"handling": [5e-05, 1e-09]}', (5e-5, 1e-9)),
        (b'{"handling": null}', local_devices.NOT_KNOWN),
        (b'{"handl', local_devices.NOT_KNOWN),
        (b"", local_devices.NOT_KNOWN),
    ],
)
def test_what_transfers_cost_is_known_once_the_worker_has_answered(tmp_path: Path, answer: bytes, cost: local_devices.Cost) -> None:
    path = str(tmp_path / "w.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(1)
        handling = local_devices.Handling(path, "localhost:2")
        connection, _ = listener.accept()
        with connection:
            assert json.loads(b"".join(iter(lambda: connection.recv(4096), b""))) == {"peer": "localhost:2"}
            assert handling.known() == local_devices.NOT_KNOWN  # and does not wait
            connection.sendall(answer)
    assert handling.known() == cost
    assert handling.known() == cost


def test_a_worker_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"w\.sock"):
        local_devices.ask(str(tmp_path / "w.sock"), {}, time.monotonic() + 0.01)


def test_workers_that_cannot_be_found_leave_the_program_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEPD_LOCAL_DEVICES", str(tmp_path / "gone"))
    monkeypatch.setattr(local_devices._State, "failed", False)
    monkeypatch.setattr(local_devices._State, "cluster", None)
    assert local_devices.local_cluster() is None
    assert "the local devices cannot be used" in capsys.readouterr().err
    monkeypatch.setattr(local_devices._State, "failed", False)


def test_what_only_a_plain_session_takes_stays_out_of_the_clusters_config() -> None:
    config_pb2 = pytest.importorskip("tensorflow.core.protobuf.config_pb2")
    config = config_pb2.ConfigProto(use_per_session_threads=True, allow_soft_placement=True, device_filters=["/cpu:0"])
    config.session_inter_op_thread_pool.add(num_threads=3)
    config.graph_options.enable_bfloat16_sendrecv = True
    config.graph_options.place_pruned_graph = True
    asked = config.SerializeToString()
    made = LocalCluster("", (), "", ("localhost:1",)).session_config(config)
    assert config.SerializeToString() == asked
    made.ClearField("cluster_def")
    assert not made.graph_options.enable_bfloat16_sendrecv
    assert made.graph_options.rewrite_options.disable_meta_optimizer  # which a direct session leaves out for pruned graphs
    made.ClearField("graph_options")
    assert made == config_pb2.ConfigProto(isolate_session_state=True, allow_soft_placement=True)
