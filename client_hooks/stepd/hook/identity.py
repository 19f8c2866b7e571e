"""Who this process is, for the daemon: the Hello message."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping

from stepd.hook import clocks
from stepd.hook.compat import Compatibility
from stepd.hook.env import Settings
from stepd.v1 import runtime_pb2

PROTOCOL = 1


def hello(settings: Settings, judged: Compatibility, shown: Mapping[str, str], argv: list[str]) -> runtime_pb2.Hello:
    """The Hello of this process. `shown`: settings as the operator should see them; `argv`: as the process was started."""
    try:
        version = importlib.metadata.version("stepd")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    message = runtime_pb2.Hello(
        job_name=settings.job_name or job_name(argv),
        hostname=socket.gethostname(),
        argv=argv,
        stepd_version=version,
        tensorflow_version=judged.tensorflow_version,
        python_version=platform.python_version(),
        compatibility=runtime_pb2.CompatibilityVerdict(active=judged.active, reason=judged.reason),
        protocol=PROTOCOL,
        settings=dict(shown),
    )
    renew(message)
    return message


def renew(message: runtime_pb2.Hello) -> None:
    """Make it the Hello of the current process: at the start, and in a forked child."""
    message.job_id = os.urandom(16).hex()  # uuid's functions may be a test's
    message.pid = os.getpid()
    message.started_unix_nanos = clocks.time_ns()


def job_name(argv: list[str]) -> str:
    """The script's name, or the module's after -m; "python" for anything else."""
    arguments = iter(argv[1:])
    for argument in arguments:
        if argument == "-m":
            return next(arguments, "python")
        if argument == "-c":
            break
        if argument in ("-W", "-X"):
            next(arguments, None)
        elif not argument.startswith("-"):
            return os.path.basename(argument)  # noqa: PTH119 - pathlib is slow to import
    return "python"
