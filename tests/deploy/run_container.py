"""Runs the daemon's image as deploy/container says, with a trainer in a container of its own, and holds it to the guide's promises.

    python tests/deploy/run_container.py [--image IMAGE] [--build-option OPTION ...] [--plan-seconds 900] [--keep]

Builds deploy/container/Dockerfile unless `--image` names one that is there; a `--build-option` is the engine's own (a volume with
certificates, a proxy). The trainer takes TensorFlow from the Python that runs this, mounted read-only: of the image's version.
Prints a line for each check and ends with 0, with 1 at the first that fails, and with 0 and `skipped: ...` where no engine works.
"""

from __future__ import annotations

import argparse
import json
import secrets
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine import BASE, Engine, UnusableError

ROOT = Path(__file__).parents[2]
TRAINING = Path(__file__).with_name("training.py")
SECONDS = 120.0
LIMIT = 2 << 30  # bytes: compose.yaml's mem_limit
SERVICE = (
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--memory=2g",
    "--cpus=1",
    "--network=none",
)
"""compose.yaml's options of the daemon; it needs no network."""
MEMORY = ("/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes")


def eventually(what: str, check: Callable[[], Any], seconds: float = SECONDS, seen: Callable[[], str] = str) -> Any:
    """What `check` returns once that is true; polls a container, which cannot notify us."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := check():
            return value
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {seconds:g} s; {seen()}")


class Deployment:
    """The daemon's container and its volumes, under names that are used once."""

    def __init__(self, engine: Engine, image: str) -> None:
        self.engine, self.image = engine, image
        self.name = f"stepd-check-{secrets.token_hex(4)}"
        self.socket, self.state = f"{self.name}-socket", f"{self.name}-state"
        self.containers: list[str] = []

    def run(self, name: str, *arguments: object) -> None:
        self.containers.append(name)
        self.engine("run", "--detach", "--name", name, *self.engine.limits(), *arguments)

    def serve(self) -> None:
        """The daemon as compose.yaml starts it."""
        volumes = ("-v", f"{self.socket}:/run/stepd", "-v", f"{self.state}:/var/lib/stepd")
        # The planner takes its share: beside a trainer on each core of the machine it would get nothing.
        self.run(self.name, *SERVICE, *volumes, "-e", "STEPD_PLANNER_YIELDS=false", self.image)

    def shell(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.engine("exec", self.name, "sh", "-c", script, check=check)

    def stepctl(self, *arguments: str, given: str = "") -> Any:
        """A command of stepctl in the daemon's container; its JSON."""
        answer = self.engine("exec", "--interactive", self.name, "stepctl", *arguments, "-o", "json", given=given)
        return json.loads(answer.stdout)

    def healthy(self) -> None:
        eventually("healthy", lambda: self.shell("stepctl health", check=False).returncode == 0, seen=self.logs)

    def session(self, job: str) -> Any:
        """The only session of the job of this name, once it has taken steps."""
        jobs = [each for each in self.stepctl("status") if each["name"] == job]
        return next((s for each in jobs for s in each["session"] if int(s["steps"])), None)

    def logs(self, name: str = "") -> str:
        answer = self.engine("logs", name or self.name, check=False)
        return (answer.stdout + answer.stderr)[-2000:]

    def exit_code(self, name: str) -> int:
        return int(self.engine("wait", name, timeout=SECONDS).stdout)

    def peak(self) -> int:
        """Bytes of memory that the daemon's container had at most, planners and files in its page cache included."""
        return int(self.shell(f"cat {' '.join(MEMORY)} 2>/dev/null | head -n 1").stdout)

    def remove(self) -> None:
        for name in self.containers:
            self.engine("rm", "--force", "--volumes", name, check=False)
        self.engine("volume", "rm", "--force", self.socket, self.state, check=False)


class Trainer:
    """tests/deploy/training.py in a container of another user who is in the daemon's group. It trains until told to stop."""

    def __init__(self, deployment: Deployment, folder: Path, name: str, *, steps: int = 0) -> None:
        self._deployment, self._out, self.name = deployment, folder / f"{name}.json", f"{deployment.name}-{name}"
        self._stop = folder / f"{name}.stop"
        where = deployment.engine(
            "run",
            "--rm",
            "--network=none",
            *deployment.engine.limits(),
            BASE,
            "python",
            "-c",
            "import site; print(site.getsitepackages()[0])",
        ).stdout.strip()
        packages = Path(site.getsitepackages()[0])
        sources = {
            ROOT,
            *(Path(line) for file in packages.glob("*.pth") for line in file.read_text().split() if Path(line).is_dir()),
        }
        mounts = [f"-v={path}:{path}:ro" for path in sources] + [f"-v={packages}:{where}:ro", f"-v={folder}:{folder}"]
        path = ":".join(str(ROOT / name) for name in ("client_hooks", "daemon", "protos"))
        hook = ("-e", "STEPD_ENABLE=1", "-e", "STEPD_SOCKET=/run/stepd/stepd.sock", "-e", f"STEPD_JOB_NAME={name}")
        deployment.run(
            self.name, "--network=none", "--user=4321:4321", "--group-add=10001", *mounts, "-v", f"{deployment.socket}:/run/stepd",
            *(() if steps else hook), "-e", f"PYTHONPATH={path}", "-e", "TF_CPP_MIN_LOG_LEVEL=3", "-e", "HOME=/tmp",
            BASE, "python", TRAINING, self._out, self._stop, steps,
        )  # fmt: skip

    def losses(self) -> list[str]:
        """Ends it; the bits of every step's loss."""
        self._stop.touch()
        assert self._deployment.exit_code(self.name) == 0, self._deployment.logs(self.name)
        losses: list[str] = json.loads(self._out.read_text())
        return losses


def passed(what: str) -> None:
    print(f"ok: {what}", flush=True)


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """A folder that users in containers may write to."""
    with tempfile.TemporaryDirectory(prefix="stepd-check-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def check_confinement(d: Deployment) -> None:
    started = time.monotonic()
    d.serve()
    d.healthy()
    passed(f"serves read-only, without network and capabilities, {time.monotonic() - started:.1f} s after `run`")
    if d.engine.name == "podman":
        d.engine("healthcheck", "run", d.name)
        passed("HEALTHCHECK")
    assert d.shell("id -u; id -g").stdout.split() == ["10001", "10001"]
    for path in ("/x", "/opt/stepd/x", "/var/x"):
        assert "Read-only file system" in d.shell(f"touch {path}", check=False).stderr, path
    assert d.shell("grep CapEff /proc/1/status").stdout.split()[1].strip("0") == ""
    passed("nobody's user, root file system cannot be written, no capabilities")
    for who, code in (("--user=1234:1234", 3), ("--user=1234:1234 --group-add=10001", 0)):
        options = (*who.split(), "--network=none", "--entrypoint=stepctl", "-v", f"{d.socket}:/run/stepd")
        answer = d.engine("run", "--rm", *d.engine.limits(), *options, d.image, "health", check=False)
        assert answer.returncode == code, (who, answer)
    passed("the daemon's group may use the socket, strangers may not")


def check_training(d: Deployment, folder: Path, plan_seconds: float) -> None:
    trainer = Trainer(d, folder, "train")
    eventually("attached", lambda: d.session("train"), seen=lambda: d.logs() + d.logs(trainer.name))
    passed("a trainer of another user, without network, attached through the volume")
    started = time.monotonic()
    said = eventually("planned", lambda: planned(d.session("train")), plan_seconds, d.logs)
    kernels = d.shell("ls /var/lib/stepd/kernels/*/* | wc -l").stdout.strip()
    assert int(kernels) > 0
    passed(f"a plan, its kernels compiled into the volume ({kernels} folders): {time.monotonic() - started:.0f} s, {said!r}")
    peak = d.peak()
    assert peak < LIMIT, peak
    passed(f"memory at most {peak / 2**20:.0f} MB, the planner and its compiler included, of {LIMIT >> 20}")
    session = d.session("train")
    other = sorted(device["name"] for device in session["device"])[-1]
    strategy = json.dumps({"placement": {f"h{k}": other for k in range(20)}})
    d.stepctl("activate", "train", "-", "--pin", given=strategy)
    eventually("switched", lambda: d.session("train")["strategy_id"], seen=lambda: str(d.session("train")))
    switch = d.stepctl("show", "train")["detail"][0]["last_switch"]
    assert switch["ok"] and not switch["not_honoured"] and switch["honoured"] > 0, switch
    passed(f"`exec -i ... stepctl activate train -`: {switch['honoured']} ops where asked")
    in_force = d.session("train")["strategy_id"]
    began = time.monotonic()
    d.engine("stop", "--time=10", d.name)
    assert d.exit_code(d.name) == 0, d.logs()
    passed(f"SIGTERM with a job attached: drained, exit code 0 after {time.monotonic() - began:.1f} s")
    back(d, in_force)
    passed("started again: the job, its strategy and its trials are known")
    d.engine("kill", "--signal=KILL", d.name)
    d.exit_code(d.name)
    back(d, in_force)
    passed("killed and started again: the same")
    losses = trainer.losses()
    plain = Trainer(d, folder, "plain", steps=len(losses)).losses()
    assert losses == plain
    passed(f"{len(losses)} losses, bit by bit those of the program without stepd")


def planned(session: Any) -> str:
    """What came of a plan: "" while there was none."""
    if session["strategy_id"] or session.get("last_trial"):
        return "tried"
    note = str(session["note"])
    assert "planning failed" not in note, note
    return note if "predicted" in note else ""


def back(d: Deployment, in_force: str) -> None:
    d.engine("start", d.name)
    d.healthy()
    eventually("attached again", lambda: (d.session("train") or {}).get("strategy_id") == in_force, seen=d.logs)
    assert in_force in [trial["strategy_id"] for trial in d.stepctl("history", "train")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--image", default="")
    parser.add_argument("--build-option", action="append", default=[])
    parser.add_argument("--plan-seconds", type=float, default=900.0)
    parser.add_argument("--keep", action="store_true", help="leave containers and volumes for a look")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    try:
        engine = Engine()
        base = engine.base()
    except UnusableError as why:
        print(f"skipped: {why}")
        return 0
    image = asked.image or "stepd:check"
    print(f"engine: {engine.name}; base image {BASE}: {base}", flush=True)
    deployment = Deployment(engine, image)
    try:
        if not asked.image:
            engine.build(ROOT / "deploy/container/Dockerfile", ROOT, image, asked.build_option)
            passed("deploy/container/Dockerfile builds")
        check_confinement(deployment)
        with folder_for_all() as folder:
            check_training(deployment, folder, asked.plan_seconds)
    except AssertionError as failed:
        print(f"FAILED: {failed}\n{deployment.logs()}")
        return 1
    finally:
        if not asked.keep:
            deployment.remove()
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
