"""What service managers and other tools rely on: systemd's notifications, and reflection."""

from __future__ import annotations

import socket

import grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def test_systemd_hears_ready_then_the_watchdog_then_stopping(start_daemon, tmp_path, monkeypatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        daemon = start_daemon()
        said = [manager.recv(100) for _ in range(4)]
        assert daemon.stop() == 0
        while said[-1] != b"STOPPING=1":
            said.append(manager.recv(100))
    assert sorted(said[:2]) == [b"READY=1", b"WATCHDOG=1"]
    assert set(said[2:-1]) == {b"WATCHDOG=1"}


def test_reflection_lists_the_services(shared_daemon) -> None:
    with grpc.insecure_channel(f"unix:{shared_daemon.socket}") as channel:
        services = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert {"stepd.v1.Runtime", "stepd.v1.Operator", "grpc.health.v1.Health"} <= services


def test_a_silent_job_is_dropped_and_its_stream_ended(start_daemon, attach, towers, wait_until) -> None:
    daemon = start_daemon("silence_seconds=1")
    hook = attach(daemon, towers)
    assert hook.welcome.wait(60)
    assert hook.ended.wait(60)
    wait_until("dropped", lambda: daemon.jobs() == [])
    assert [job.id for job in daemon.jobs(ended=True)] == [hook.job_id]
