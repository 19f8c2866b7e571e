"""Settings: sources, origins, and what is refused."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request

import grpc
import pytest

from stepd.daemon.address import tcp_credentials
from stepd.daemon.config import load
from stepd.daemon.errors import ConfigError
from stepd.v1 import operator_pb2, operator_pb2_grpc


def test_command_line_beats_environment_beats_file_beats_default(tmp_path) -> None:
    file = tmp_path / "stepd.toml"
    file.write_text('margin = 0.2\ndrift = 0.5\nplan_seconds = 3\nlisten = ""\n')
    environ = {"STEPD_DRIFT": "0.6", "STEPD_PLAN_SECONDS": "4", "STEPD_ENABLE": "1"}
    loaded = load(file, {"plan_seconds": "5", "metrics_port": None}, environ)
    settings = loaded.settings
    assert (settings.margin, settings.drift, settings.plan_seconds, settings.profile_steps) == (0.2, 0.6, 5.0, 5)
    assert loaded.origins["margin"] == f"file {file}"
    assert loaded.origins["drift"] == "environment STEPD_DRIFT"
    assert loaded.origins["plan_seconds"] == "command line"
    assert loaded.origins["metrics_port"] == "default"
    assert settings.activation_settings().margin == 0.2


@pytest.mark.parametrize(
    ("toml", "options", "environ", "message"),
    [
        ("margn = 0.1", {}, {}, "unknown setting 'margn'"),
        ("", {"speed": "9"}, {}, "command line: unknown setting 'speed'"),
        ("margin = 2", {}, {}, "margin"),
        ("", {}, {"STEPD_DRIFT": "much"}, "environment STEPD_DRIFT: drift"),
        ("margin = ", {}, {}, "not valid TOML"),
        ("", {"tls_cert": "/no/such.pem"}, {}, "/no/such.pem is not a readable file"),
    ],
)
def test_bad_settings_name_their_origin(tmp_path, toml, options, environ, message) -> None:
    file = tmp_path / "stepd.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as refused:
        load(file, options, environ)
    assert message in str(refused.value)


def test_secrets_are_masked() -> None:
    assert "hunter2" not in str(load(None, {"token": "hunter2"}, {}).describe())


@pytest.mark.parametrize(
    ("listen", "token", "allowed"), [("0.0.0.0:1", "", False), ("0.0.0.0:1", "t", True), ("127.0.0.1:1", "", True)]
)
def test_strangers_are_kept_out(listen, token, allowed) -> None:
    settings = load(None, {"listen": listen, "token": token}, {}).settings
    if allowed:
        assert tcp_credentials(settings) is None
        return
    with pytest.raises(ConfigError, match="or a token"):
        tcp_credentials(settings)


def test_tcp_asks_for_the_token_and_metrics_are_served(start_daemon, free_port, stepctl) -> None:
    port, metrics = free_port(), free_port()
    daemon = start_daemon(f"listen=127.0.0.1:{port}", f"metrics_port={metrics}", "token=hunter2")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            operator_pb2_grpc.OperatorStub(channel).ListJobs(operator_pb2.ListJobsRequest(), timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    host = ("--host", f"127.0.0.1:{port}")
    assert stepctl(daemon.socket, *host, "--token", "wrong", "status").code == 3
    assert stepctl(daemon.socket, *host, "--token", "hunter2", "status", "-o", "json").out.strip() == "[]"
    assert stepctl(daemon.socket, *host, "health").out.strip() == "SERVING"
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as answer:
        assert b"stepd_jobs 0.0" in answer.read()


def test_config_command_prints_origins_as_json() -> None:
    command = [sys.executable, "-m", "stepd.daemon.main", "config", "--set", "margin=0.3", "-o", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(answer.stdout)["margin"] == {"value": "0.3", "origin": "command line"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "margin=yes"), "command line: margin:"),
        (("--set", "algorithm=fastest"), "command line: algorithm: no planning algorithm 'fastest'; there are: "),
        (("--metrics-port", "{port}"), "metrics_port: cannot use 127.0.0.1:{port}: Address already in use"),
        (
            ("--listen", "localhost:0", "--set", "tls_cert={pem}", "--set", "tls_key={pem}"),
            "tls_cert {pem} and tls_key {pem} are no pair",
        ),
    ],
)
def test_bad_configuration_is_exit_2(tmp_path, arguments, message) -> None:
    pem = tmp_path / "self.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"port": taken.getsockname()[1], "pem": pem}
        own = ["--socket", str(tmp_path / "s"), "--state-dir", str(tmp_path)]
        command = [sys.executable, "-m", "stepd.daemon.main", "serve", *own, *(each.format(**names) for each in arguments)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("stepd: error: " + message.format(**names))
