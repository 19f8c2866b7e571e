"""The files of deploy/ against the tools that read them, where these are installed, and against what the program takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stepd.daemon import main as stepd_main

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "stepd.service"
EXPOSED = 10  # of 1000, in systemd's own count; 5 when last looked at

systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=120)


@systemd
def test_the_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    """Its program is replaced by one that is there: nothing is installed in /opt where tests run."""
    copy = tmp_path / "stepd.service"
    copy.write_text(UNIT.read_text().replace("/opt/stepd/bin/stepd", sys.executable))
    answer = run("systemd-analyze", "verify", "--man=no", copy)
    assert (answer.returncode, answer.stderr) == (0, "")


@systemd
def test_the_unit_exposes_next_to_nothing() -> None:
    answer = run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSED}", UNIT)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="kubernetes-validate is not installed")
def test_the_manifest_is_what_kubernetes_takes() -> None:
    manifest = DEPLOY / "kubernetes" / "training-job.yaml"
    answer = run(sys.executable, "-m", "kubernetes_validate", "--strict", "--kubernetes-version", "1.29", manifest)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def served_with(file: Path) -> list[str]:
    """The daemon's command line that a deployment file starts, without the program itself."""
    text = file.read_text()
    if file.name == "Dockerfile":
        listed = re.search(r"^ENTRYPOINT \[(.*)\]$", text, re.MULTILINE)
        return re.findall(r'"([^"]*)"', listed[1])[1:] if listed else []
    line = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
    return line[1].split()[1:] if line else []


@pytest.mark.parametrize("file", [UNIT, DEPLOY / "container" / "Dockerfile"], ids=lambda file: file.name)
def test_what_is_started_are_options_that_the_daemon_has(file: Path) -> None:
    """`stepd config` takes the same options as `serve`, and refuses those that are unknown."""
    command, *options = served_with(file)
    assert command == "serve"
    answer = CliRunner().invoke(stepd_main.app, ["config", *options])
    assert answer.exit_code == 0, answer.output
    assert "socket = /run/stepd/stepd.sock  # command line" in answer.output
    assert "state_dir = /var/lib/stepd  # command line" in answer.output


def test_every_deployment_shares_one_socket() -> None:
    for file in ("container/compose.yaml", "kubernetes/training-job.yaml", "container/Dockerfile", "systemd/stepd.service"):
        assert "/run/stepd" in (DEPLOY / file).read_text(), file


def test_the_image_is_built_from_what_it_copies_and_little_else() -> None:
    copied = set(re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "container" / "Dockerfile").read_text(), re.MULTILINE))
    sources = {name for line in copied for name in line.split()}
    allowed = (DEPLOY / "container" / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in allowed if line.startswith("!")} == sources
    assert all((DEPLOY.parent / name).exists() for name in sources)
