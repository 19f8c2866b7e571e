"""The daemon's settings: command line over environment (STEPD_*) over TOML file over defaults, each with
its origin.

Unknown keys are errors. Knows nothing of what the settings do.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from stepd.core import activation_values as activation
from stepd.daemon.errors import ConfigError

ENV_PREFIX = "STEPD_"
DEFAULTS = activation.Settings()


class Settings(BaseSettings):
    """Effective settings. Times in seconds, shares as fractions."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    socket: Path = Field(default_factory=lambda: default_socket(), description="Unix socket of hooks and stepctl.")
    socket_mode: str = Field("0660", pattern=r"^0?[0-7]{3}$", description="Permissions of the socket, octal.")
    state_dir: Path = Field(default_factory=lambda: default_state_dir(), description="Folder of the database.")
    cache_dir: Path = Field(
        default_factory=lambda: default_cache_dir(),
        description="Compiled kernels, where they cannot lie beside the sources.",
    )
    listen: str = Field("", description="Also serve TCP on HOST:PORT; beyond loopback this needs TLS or a token.")
    tls_cert: Path | None = Field(None, description="Server certificate (PEM) of the TCP port.")
    tls_key: Path | None = Field(None, description="Private key (PEM) of the TCP port.")
    tls_client_ca: Path | None = Field(None, description="Clients must show a certificate of this authority (mTLS).")
    token: SecretStr = Field(SecretStr(""), description="TCP clients must send it as `authorization: Bearer TOKEN`.")
    metrics_port: int = Field(0, ge=0, le=65535, description="Prometheus metrics on 127.0.0.1; 0: off.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severity that is logged.")
    log_format: Literal["auto", "json", "console"] = Field("auto", description="auto: JSON off a terminal.")
    planner: bool = Field(True, description="Plan and propose by itself; false: only what operators activate.")
    algorithm: str = Field("portfolio", description="Planning algorithm; `stepctl compare` shows their names.")
    order: Literal["auto", "native", "control", "none"] = Field(
        "auto", description="How the planner's execution order is enforced in the training process; none: it makes no order."
    )
    planner_threads: int = Field(0, ge=0, description="Cores of a planner process; 0: all that it may use but one.")
    warm_up: bool = Field(True, description="Compile the planners at the start, in what others leave of the cores.")
    planner_yields: bool = Field(True, description="Plan only in what training leaves of the cores; false: beside it.")
    margin: float = Field(DEFAULTS.margin, ge=0, lt=1, description="Least predicted gain that is worth a switch.")
    profile_steps: int = Field(DEFAULTS.profile_steps, ge=1, description="Profiled steps that a plan needs.")
    plan_seconds: float = Field(DEFAULTS.plan_seconds, gt=0, description="Time budget of one plan.")
    switch_seconds: float = Field(DEFAULTS.switch_seconds, gt=0, description="How long a hook may take to switch.")
    cool_down_seconds: float = Field(
        DEFAULTS.cool_down_seconds,
        ge=0,
        description="Rest after a strategy lost; doubles with each loss in a row.",
    )
    improve_seconds: float = Field(
        DEFAULTS.improve_seconds,
        ge=0,
        description="Rest after a strategy was kept, before a better one is looked for.",
    )
    recheck_seconds: float = Field(DEFAULTS.recheck_seconds, gt=0, description="Time between looks for drift in costs.")
    max_losses: int = Field(DEFAULTS.max_losses, ge=1, description="Strategies in a row that may lose before it rests.")
    drift: float = Field(DEFAULTS.drift, gt=0, description="Change of step time that starts a new round.")
    silence_seconds: float = Field(60.0, gt=0, description="A job that is silent for so long has ended.")

    @field_validator("tls_cert", "tls_key", "tls_client_ca")
    @classmethod
    def _readable(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"{path} is not a readable file")
        return path

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` hands over: it merges the sources itself, to know each value's origin."""
        return (init_settings,)

    def activation_settings(self) -> activation.Settings:
        """What the state machine reads."""
        names = activation.Settings.__dataclass_fields__
        return activation.Settings(**{name: getattr(self, name) for name in names if name in type(self).model_fields})


@dataclass(frozen=True)
class Configuration:
    """Settings and, by name, where each value comes from."""

    settings: Settings
    origins: Mapping[str, str]

    def describe(self) -> dict[str, str]:
        """ "value (origin)" by name; secrets masked."""
        return {name: f"{getattr(self.settings, name)} ({origin})" for name, origin in self.origins.items()}


def load(file: Path | None, options: Mapping[str, Any], environ: Mapping[str, str]) -> Configuration:
    """Merge the sources. Raises ConfigError that names the setting and its origin."""
    names = Settings.model_fields
    values: dict[str, Any] = {}
    origins = dict.fromkeys(names, "default")
    for origin, source in (
        (f"file {file}", _read_toml(file) if file else {}),
        ("environment", _from_environment(names, environ)),
        ("command line", {key: value for key, value in options.items() if value is not None}),
    ):
        for key, value in source.items():
            if key not in names:
                raise ConfigError(f"{origin}: unknown setting {key!r}; `stepd config` lists the known ones")
            values[key] = value
            origins[key] = f"{origin} {ENV_PREFIX}{key.upper()}" if origin == "environment" else origin
    try:
        return Configuration(Settings(**values), origins)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else "settings"
        raise ConfigError(f"{origins.get(key, 'settings')}: {key}: {first['msg']}") from error


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    return document


def _from_environment(names: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ.get(ENV_PREFIX + name.upper(), "") for name in names}
    return {name: value for name, value in found.items() if value}


def default_socket() -> Path:
    """$XDG_RUNTIME_DIR/stepd/stepd.sock, else /run/stepd/stepd.sock where that can be written, else one in
    the temporary folder.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "stepd" / "stepd.sock"
    run = Path("/run/stepd")
    if os.access(run if run.exists() else run.parent, os.W_OK):
        return run / "stepd.sock"
    return Path(tempfile.gettempdir()) / f"stepd-{os.getuid()}" / "stepd.sock"


def default_state_dir() -> Path:
    """systemd's StateDirectory, else the user's state folder."""
    given = os.environ.get("STATE_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "stepd"


def default_cache_dir() -> Path:
    """systemd's CacheDirectory, else the user's cache folder. What is in it can be lost."""
    given = os.environ.get("CACHE_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "stepd"
