"""Puts the hook together while TensorFlow is being imported (settings, verdict, observer, engine), and takes it apart."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from stepd.hook import compat, engine, env, local_devices, log
from stepd.hook.engine.settings import EngineSettings, parse_chaos
from stepd.hook.observer import Observer


@dataclass
class Installation:
    """What is installed. `uninstall` is the reverse of `install`, in reverse order."""

    observer: Observer
    remove_engine: Callable[[], None] | None

    def __post_init__(self) -> None:
        # Bounded by the observer itself; registered late, so that it runs before what the program registered early.
        atexit.register(self.observer.stop)

    def uninstall(self) -> None:
        """Give TensorFlow its own methods back, then close the channel and the log."""
        if self.remove_engine is not None:
            self.remove_engine()
        self.observer.stop()
        atexit.unregister(self.observer.stop)
        log.reset()


def install(session_module: ModuleType, environ: Mapping[str, str]) -> Installation | None:
    """Install the hook as the environment asks; None when it asks for what cannot be read (one line on stderr says so).

    A TensorFlow that is not supported gets an observer without an engine: the job is listed with the reason, and untouched.
    """
    try:
        settings = env.read(environ)
        engine_settings = _engine_settings(settings)
    except ValueError as error:  # SettingsError, and what the engine's own grammar refuses
        log.tell_operator(f"the hook is off: {error}")
        return None
    log.configure(settings.log, settings.log_level)
    for name in env.unknown(environ):
        log.logger.warning("%s is no variable of the hook: a setting of the daemon, or a typo (docs/settings.md)", name)
    judged = compat.examine(session_module)
    observer = Observer.create(settings, judged, env.report(settings, environ), list(getattr(sys, "orig_argv", sys.argv)))
    os.register_at_fork(
        before=observer.before_fork,
        after_in_parent=observer.after_fork,
        after_in_child=observer.after_fork_in_child,
    )
    if not judged.active:
        log.tell_operator(f"the hook is off: {judged.reason}")
        observer.announce()
        return Installation(observer, None)
    remove = engine.install(observer, engine_settings)
    log.logger.info("installed: %s", judged.reason)
    return Installation(observer, remove)


def _engine_settings(settings: env.Settings) -> EngineSettings:
    """Raises ValueError when STEPD_CHAOS cannot be understood."""
    return EngineSettings(
        way=settings.way,
        order=settings.order,
        splits=settings.splits,
        user_devices=settings.user_devices,
        chaos=parse_chaos(settings.chaos),
        copies=settings.max_copies,
        gate_seconds=settings.gate_seconds,
        state_dir=Path(settings.checkpoint_dir) if settings.checkpoint_dir else None,
        local_cluster=local_devices.local_cluster if settings.local_devices else None,
    )
