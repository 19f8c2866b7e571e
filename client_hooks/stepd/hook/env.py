"""Every STEPD_* variable of the training process, in one registry: name, type, default and the text of docs/settings.md.

`read` turns an environment into frozen `Settings`; nothing else in the hook looks at the environment. It knows no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Literal

from stepd.hook import env_values
from stepd.hook.model import Order, Way

PREFIX = "STEPD_"


class SettingsError(ValueError):
    """A STEPD_* variable holds a value that cannot be used; the text names the variable and says what it takes."""


@dataclass(frozen=True)
class Settings:
    """The effective settings of one training process. `origins` says where each came from: environment or default."""

    enable: bool = False
    socket: str = ""
    daemon: bool = True
    job_name: str = ""
    log: str = ""
    log_level: str = "info"
    way: Way = Way.AUTO
    order: Order = Order.AUTO
    splits: bool = False
    user_devices: Literal["free", "keep", "override"] = "free"
    max_copies: int = 6
    gate_seconds: float = 10.0
    checkpoint_dir: str = ""
    profile: str = "auto"
    overhead_budget: float = 0.01
    min_gain: float = 0.02
    chaos: str = ""
    report: str = ""
    token: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    local_devices: str = ""
    launcher_path: str = ""


@dataclass(frozen=True)
class Variable:
    """One environment variable: `parse` returns the setting's value or raises ValueError with what it takes."""

    name: str
    field: str
    type: str
    help: str
    parse: Callable[[str], object]
    internal: bool = False


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "STEPD_ENABLE",
        "enable",
        "flag",
        "Install the hook in this process. Without it nothing of stepd is imported.",
        env_values.flag,
    ),
    Variable(
        "STEPD_SOCKET",
        "socket",
        "path or host:port",
        "Where the daemon listens: the path of a Unix socket (`unix:PATH` too), or `host:port` for TCP. Unset: "
        "the first that exists of `$XDG_RUNTIME_DIR/stepd/stepd.sock`, `/run/stepd/stepd.sock` and `stepd-UID/stepd.sock` in the "
        "temporary folder (where it must be yours or root's).",
        str,
    ),
    Variable(
        "STEPD_DAEMON",
        "daemon",
        "flag",
        "0: never talk to a daemon. The hook then only switches when told to by STEPD_CHAOS.",
        env_values.flag,
    ),
    Variable(
        "STEPD_JOB_NAME",
        "job_name",
        "text",
        "Name of the job in `stepctl status`. Unset: the script's name.",
        str,
    ),
    Variable(
        "STEPD_LOG",
        "log",
        "path or stderr",
        "Where the hook writes its own log; `%p` in the path becomes the process id. Unset: nowhere. The program's logging "
        "configuration is never touched.",
        str,
    ),
    Variable(
        "STEPD_LOG_LEVEL",
        "log_level",
        "debug, info, warning or error",
        "Least level that is written to STEPD_LOG.",
        env_values.choice("debug", "info", "warning", "error"),
    ),
    Variable(
        "STEPD_WAY",
        "way",
        "auto, in-session or restart",
        "How sessions are switched, whatever the strategy asks for.",
        env_values.way,
    ),
    Variable(
        "STEPD_ORDER",
        "order",
        "auto, native, control or none",
        "How execution order is enforced. auto: as the strategy asks, which is the native executor where it is built, else control "
        "edges. native: it is built when it is not there; only CPU devices of the program's own process and local devices, with "
        "TensorFlow 2.21 and a C++ compiler; control edges elsewhere.",
        env_values.order,
    ),
    Variable(
        "STEPD_SPLITS",
        "splits",
        "0 or 1",
        "1: planners may split ops over devices (docs/splits.md). Sums are then added in another order, so that values differ in "
        "their last bits. 0: every value keeps its bits.",
        env_values.flag,
    ),
    Variable(
        "STEPD_USER_DEVICES",
        "user_devices",
        "free, keep or override",
        "What `tf.device` in the program means to placement. free: job, task and device type are kept, the index is free. keep: "
        "exactly that device. override: ignored, and any op may go to another device type that has a kernel for it.",
        env_values.choice("free", "keep", "override"),
    ),
    Variable(
        "STEPD_MAX_COPIES",
        "max_copies",
        "number",
        "Rewritten copies of the graph that may live in a session before it is compacted by a restart.",
        env_values.count(1, 1000),
    ),
    Variable(
        "STEPD_GATE_SECONDS",
        "gate_seconds",
        "seconds",
        "How long a switch waits for runs in flight to end before it gives up.",
        env_values.fraction(0.0, 3600.0),
    ),
    Variable(
        "STEPD_CHECKPOINT_DIR",
        "checkpoint_dir",
        "path",
        "Folder for the checkpoints of switches by restart. Unset: a folder of the process's own in the temporary folder.",
        str,
    ),
    Variable(
        "STEPD_PROFILE",
        "profile",
        "auto, off or always",
        "auto: steps are traced within the budget. off: never. always: every step (slow; to look for faults).",
        env_values.profile,
    ),
    Variable(
        "STEPD_OVERHEAD_BUDGET",
        "overhead_budget",
        "fraction",
        "Share of wall time that profiling and trials of strategies may cost, over any hour.",
        env_values.fraction(0.0, 1.0),
    ),
    Variable(
        "STEPD_MIN_GAIN",
        "min_gain",
        "fraction",
        "A new strategy is kept only when steps became faster by at least this share.",
        env_values.fraction(0.0, 0.9),
    ),
    Variable(
        "STEPD_CHAOS",
        "chaos",
        "switch-every=K,way=W,seed=S,devices=N,order=1",
        "Switch to random valid strategies after every K runs, without a daemon. The instrument of the fidelity tests.",
        str,
    ),
    Variable(
        "STEPD_REPORT",
        "report",
        "path",
        "Append one JSON line for every session, traced step, switch and verdict of this process to a file.",
        str,
    ),
    Variable("STEPD_TOKEN", "token", "text", "Token that a daemon on TCP asks for.", str),
    Variable("STEPD_TLS_CA", "tls_ca", "path", "Certificate authority (PEM) of a daemon on TCP; turns TLS on.", str),
    Variable("STEPD_TLS_CERT", "tls_cert", "path", "Client certificate (PEM) for mutual TLS.", str),
    Variable("STEPD_TLS_KEY", "tls_key", "path", "Key (PEM) of STEPD_TLS_CERT.", str),
    Variable(
        "STEPD_LOCAL_DEVICES",
        "local_devices",
        "path",
        "Set by `stepd-run --local-devices`: folder where the worker processes can be found.",
        str,
        internal=True,
    ),
    Variable(
        "STEPD_LAUNCHER_PATH",
        "launcher_path",
        "path",
        "Set by `stepd-run`: folder that it put on PYTHONPATH, and that the hook takes off again.",
        str,
        internal=True,
    ),
)

_BY_NAME = {variable.name: variable for variable in VARIABLES}
_SECRET = frozenset({"token"})


def enabled(environ: Mapping[str, str]) -> bool:
    """True when STEPD_ENABLE asks for the hook. A value that is neither yes nor no counts as yes: `read` then complains."""
    return environ.get("STEPD_ENABLE", "").lower() not in env_values.NO


def read(environ: Mapping[str, str]) -> Settings:
    """The settings that an environment asks for.

    Raises:
        SettingsError: a variable holds what it does not take; names the first such variable.
    """
    values: dict[str, object] = {}
    for variable in VARIABLES:
        text = environ.get(variable.name)
        if text is None or (not text and variable.field != "enable"):
            continue
        try:
            values[variable.field] = variable.parse(text.strip())
        except ValueError as error:
            raise SettingsError(f"{variable.name}={text!r}: it takes {error}") from None
    return Settings(**values)  # type: ignore[arg-type]  # parse gives each field its type


def unknown(environ: Mapping[str, str]) -> list[str]:
    """STEPD_* variables of an environment that the registry does not know, sorted."""
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in _BY_NAME)


def report(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Each setting as "value (origin)", for the operator; secrets are masked."""
    lines = {}
    for variable in VARIABLES:
        value = getattr(settings, variable.field)
        text = "***" if variable.field in _SECRET and value else str(getattr(value, "value", value))
        lines[variable.name] = f"{text} ({'environment' if environ.get(variable.name) else 'default'})"
    return lines


def markdown() -> str:
    """The table of docs/settings.md, generated so that it cannot differ from the code."""
    defaults = {field.name: field.default for field in fields(Settings)}
    rows = [
        "| variable | takes | default | what it does |",
        "|---|---|---|---|",
    ]
    for variable in VARIABLES:
        if variable.internal:
            continue
        default = defaults[variable.field]
        shown = "" if default == "" else str(getattr(default, "value", int(default) if isinstance(default, bool) else default))
        rows.append(f"| `{variable.name}` | {variable.type} | {f'`{shown}`' if shown else ''} | {variable.help} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
