"""Every command of stepctl: has help, is in the operator's guide, and shows what the daemon knows."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from stepd.cli import commands, main
from stepd.cli.commands import MODULES, OFFLINE
from stepd.cli.main import app

GUIDE = Path(__file__).parents[2] / "docs" / "operator.md"
COMMANDS = {name: get_command(app).get_command(None, name) for name in MODULES}


def test_every_module_adds_a_command() -> None:
    assert {module.name for module in pkgutil.iter_modules(commands.__path__)} == {*MODULES.values()}
    assert all(COMMANDS.values())


def test_what_only_talks_to_a_daemon_imports_no_compiler() -> None:
    """A health check runs every few seconds beside a training job."""
    modules = sorted({*MODULES.values()} - OFFLINE)
    program = f"from stepd.cli.lazy import _commands_of; import sys; [_commands_of(m) for m in {modules}]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "grpc" in loaded
    assert not {"numba", "scipy", "numpy", "sklearn", "stepd.core.placement"} & {*loaded}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_has_help_and_is_in_the_guide(name: str) -> None:
    assert len(COMMANDS[name].help or "") > 20
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert re.search(rf"^### `stepctl {name}\b", GUIDE.read_text(), re.MULTILINE), f"document `stepctl {name}` in {GUIDE.name}"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_options_are_in_the_guide(name: str) -> None:
    section = re.split(r"^### ", GUIDE.read_text(), flags=re.MULTILINE)
    mine = next((part for part in section if part.startswith(f"`stepctl {name}")), "")
    options = {max(parameter.opts, key=len) for parameter in COMMANDS[name].params if parameter.param_type_name == "option"}
    missing = sorted(option for option in options - {"--help", "--output", "--session"} if option not in mine)
    assert not missing, f"`stepctl {name}`: options that {GUIDE.name} does not mention: {missing}"


def test_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["fly"]).exit_code == 2


@pytest.mark.parametrize("arguments", [["status", "-o", "json"], ["status", "-a", "-o", "table"]])
def test_no_daemon_is_one_line_and_exit_3(arguments, monkeypatch, capsys, tmp_path) -> None:
    from stepd.cli import main

    monkeypatch.setattr("sys.argv", ["stepctl", "--socket", str(tmp_path / "no.sock"), *arguments])
    with pytest.raises(SystemExit) as end:
        main.main()
    said = capsys.readouterr()
    assert end.value.code == 3
    assert said.out == ""
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("command", ["health", "status", "doctor"])
def test_a_socket_of_another_group_is_named_and_not_taken_for_a_usage_error(command, monkeypatch, capsys, tmp_path) -> None:
    """As for a user who is not in the daemon's group (tests may run as root, whom nothing is denied)."""
    path = tmp_path / "stepd.sock"
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(path))
        monkeypatch.setattr(os, "access", lambda file, *_, **__: str(file) != str(path))
        monkeypatch.setattr(sys, "argv", ["stepctl", "--socket", str(path), command])
        with pytest.raises(SystemExit) as ended:
            main.main()
    said = capsys.readouterr()
    assert ended.value.code == (1 if command == "doctor" else 3)
    assert f"{path} may not be used by this user: join the daemon's group" in " ".join((said.out + said.err).split())


def test_shell_completion_knows_the_commands() -> None:
    environ = {"_STEPCTL_COMPLETE": "complete_bash", "COMP_WORDS": "stepctl st", "COMP_CWORD": "1"}
    shown = CliRunner().invoke(app, [], prog_name="stepctl", env=environ)
    assert "status" in shown.output


def test_json_is_json(tmp_path) -> None:
    shown = CliRunner().invoke(app, ["--socket", str(tmp_path / "no.sock"), "version", "-o", "json"])
    assert json.loads(shown.stdout)["daemon"] is None
