"""The start-up file, in a wheel and in editable mode: enabled it starts the hook, disabled it imports nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = sysconfig.get_path("purelib")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site-packages folder that the wheel makes."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    site = folder / "site"
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(site)
    return site


@pytest.fixture(scope="module")
def fake_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something that is imported as TensorFlow's session module is, of a version that stepd does not know."""
    folder = tmp_path_factory.mktemp("fake")
    for name, text in {
        "tensorflow/__init__.py": "import tensorflow.python.client.session",
        "tensorflow/python/__init__.py": "",
        "tensorflow/python/client/__init__.py": "",
        "tensorflow/python/client/session.py": "class BaseSession: pass",
        "tensorflow/python/client/pywrap_tf_session.py": "",
        "tensorflow/python/framework/__init__.py": "",
        "tensorflow/python/framework/versions.py": "VERSION = '9.9.9'",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(site: Path, program: str, *paths: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter whose only start-up files are those of `site`."""
    start = f"import sys, site; sys.path += {[*map(str, paths), LIBRARIES]!r}; site.addsitedir({str(site)!r})\n"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("STEPD_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-S", "-c", start + program], env=clean | environ, capture_output=True, text=True, timeout=120, check=False
    )


LOADED = "import json; print(json.dumps([m for m in sys.modules if m.split('.')[0] in ('stepd', 'grpc', 'wrapt', 'google')]))"


@pytest.mark.parametrize("environ", [{}, {"STEPD_ENABLE": ""}, {"STEPD_ENABLE": "0"}])
def test_disabled_imports_nothing(wheel: Path, environ: dict[str, str]) -> None:
    done = run(wheel, LOADED, **environ)
    assert json.loads(done.stdout) == []
    assert done.stderr == ""


def test_enabled_starts_the_hook_once_tensorflow_is_imported(wheel: Path, fake_tensorflow: Path) -> None:
    program = "import tensorflow; print('imported')\n" + LOADED
    done = run(wheel, program, fake_tensorflow, STEPD_ENABLE="1", STEPD_SOCKET="/nonexistent/stepd.sock")
    imported, loaded = done.stdout.splitlines()
    assert imported == "imported"
    assert "stepd.hook.observer" in json.loads(loaded)
    assert done.stderr == "stepd: the hook is off: TensorFlow 9.9.9 is outside of the supported range 2.12 to 2.21\n"


def test_enabled_without_tensorflow_loads_no_more_than_it_must(wheel: Path) -> None:
    done = run(wheel, LOADED, STEPD_ENABLE="1")
    stepd = [name for name in json.loads(done.stdout) if name.startswith("stepd.")]
    assert sorted(stepd) == ["stepd.hook", "stepd.hook.autostart", "stepd.hook.compat"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("STEPD_WAY", "sideways", "STEPD_WAY='sideways': it takes one of auto, in-session, restart"),
        ("STEPD_CHAOS", "often", "STEPD_CHAOS: cannot understand 'often'"),
    ],
)
def test_a_bad_setting_turns_the_hook_off_and_says_so(wheel: Path, fake_tensorflow: Path, name: str, text: str, said: str) -> None:
    done = run(wheel, "import tensorflow; print('imported')", fake_tensorflow, STEPD_ENABLE="1", **{name: text})
    assert done.stdout == "imported\n"
    assert done.stderr.startswith(f"stepd: the hook is off: {said}")
    assert len(done.stderr.splitlines()) == 1


def test_a_broken_installation_never_fails_the_programs_import(wheel: Path, fake_tensorflow: Path) -> None:
    program = "sys.modules['stepd.hook.installation'] = None\nimport tensorflow; print('imported')"
    done = run(wheel, program, fake_tensorflow, STEPD_ENABLE="1")
    assert done.stdout == "imported\n"
    assert done.stderr.startswith("stepd: the hook is off: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_wrapt_never_fails_the_interpreters_start(wheel: Path) -> None:
    blocked = "import sys; sys.modules['wrapt'] = None\n"
    start = f"import sys, site; sys.path += [{LIBRARIES!r}]; site.addsitedir({str(wheel)!r})\nprint('started')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", blocked + start],
        env={"STEPD_ENABLE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "started\n"
    assert "stepd: the hook is off" in done.stderr


def test_the_wheel_holds_the_namespace_and_no_stranger(wheel: Path) -> None:
    top = {path.name for path in wheel.iterdir()}
    assert {"stepd", "stepd_autostart.pth", "stepd_autostart.start"} <= top
    assert {name for name in top if not name.endswith(".dist-info")} == {"stepd", "stepd_autostart.pth", "stepd_autostart.start"}
    assert not (wheel / "stepd" / "__init__.py").exists()
    assert (wheel / "stepd" / "hook" / "boot" / "sitecustomize.py").exists()
    assert len((wheel / "stepd_autostart.pth").read_text().splitlines()) == 1


@pytest.mark.skipif(not list(Path(LIBRARIES).glob("_stepd*.pth")), reason="stepd is not installed in editable mode here")
def test_editable_installation_has_the_start_up_file() -> None:
    program = "import sys; print('stepd.hook.autostart' in sys.modules)"
    environ = {"PATH": os.environ["PATH"], "STEPD_ENABLE": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
