"""A container engine on this machine, as the checks of deploy/container use it: podman, or docker where there is no podman.

It goes around what keeps engines from working in small virtual machines: limits on files and processes that may not be raised, a
hybrid control-group hierarchy (crun takes none: podman gets a mount namespace without its version 2 half), and a base image that
cannot be pulled (made of Debian's packages). It knows nothing of stepd.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

BASE = "docker.io/library/python:3.11-slim"
DEBIAN, MIRROR = "bookworm", "http://deb.debian.org/debian"
PACKAGES = "python3,python3-venv,python3-distutils,ca-certificates"
HYBRID = Path("/sys/fs/cgroup/unified")


class UnusableError(Exception):
    """There is no engine here, or it cannot do what is asked; str() says why."""


class Engine:
    """Runs the engine's commands; `close` when done."""

    def __init__(self) -> None:
        """Raises UnusableError."""
        found = next((name for name in ("podman", "docker") if shutil.which(name)), None)
        if found is None:
            raise UnusableError("neither podman nor docker is installed")
        self.name, self._namespace = found, None
        self._prefix: list[str] = []
        if found == "podman" and HYBRID.is_mount() and os.geteuid() == 0:
            self._namespace = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "--propagation",
                    "private",
                    "sh",
                    "-c",
                    f"umount {HYBRID} && echo done && exec sleep infinity",
                ],
                stdout=subprocess.PIPE,
            )
            if self._namespace.stdout is None or not self._namespace.stdout.readline():
                raise UnusableError(f"podman: crun needs one version of control groups, and {HYBRID} cannot be unmounted for it")
            self._prefix = ["nsenter", f"--mount=/proc/{self._namespace.pid}/ns/mnt"]
        answer = self("info", check=False)
        if answer.returncode:
            self.close()
            raise UnusableError(f"{found} does not work here: {answer.stderr.strip().splitlines()[-1:]}")

    def close(self) -> None:
        """End the namespace; containers are the caller's to remove."""
        if self._namespace is not None:
            self._namespace.kill()
            self._namespace.wait()

    def __call__(
        self, *arguments: object, check: bool = True, timeout: float = 120, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run an engine's command. Raises AssertionError with what it said."""
        command = [*self._prefix, self.name, *map(str, arguments)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, input=given)
        assert not check or answer.returncode == 0, f"{' '.join(map(str, arguments))}: {answer.stdout}{answer.stderr}"
        return answer

    def limits(self) -> list[str]:
        """Options that keep limits at what this process may set: engines raise them, which takes a capability."""
        rows = (
            (name, resource.getrlimit(number)[1])
            for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
        )
        return [f"--ulimit={name}={most}:{most}" for name, hard in rows if (most := min(4096, hard if hard > 0 else 4096))]

    def has(self, image: str) -> bool:
        """Whether the image is there."""
        return self("image", "inspect", image, check=False).returncode == 0

    def base(self) -> str:
        """The Dockerfile's base image: pulled, else an equivalent made by debootstrap. Returns where it is from."""
        if self.has(BASE):
            return "as it was here"
        with suppress(AssertionError, subprocess.TimeoutExpired):
            self("pull", BASE, timeout=300)
            return "pulled"
        if os.geteuid() != 0 or shutil.which("debootstrap") is None:
            raise UnusableError(f"{BASE} cannot be pulled, and making one of Debian's packages takes root and debootstrap")
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "root"
            command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", DEBIAN, str(made), MIRROR]
            answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
            if answer.returncode:
                raise UnusableError(f"debootstrap failed: {answer.stdout[-500:]}")
            (made / "usr/bin/python").symlink_to("python3")
            archive = Path(folder) / "base.tar"
            subprocess.run(["tar", "-C", str(made), "-cf", str(archive), "."], check=True, timeout=300)
            self("import", archive, BASE, timeout=600)
        return f"made of Debian {DEBIAN}'s packages"

    def build(self, file: Path, context: Path, image: str, options: Sequence[str]) -> None:
        """Build an image of a Dockerfile, in the format that keeps health checks."""
        own = ["--format=docker", "--isolation=chroot", "--pull=never"] if self.name == "podman" else []
        self("build", *own, "--network=host", *options, "-f", file, "-t", image, context, timeout=1800)
