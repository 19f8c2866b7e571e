"""The hook's entry: `start()` is called by the start-up file, by stepd-run's sitecustomize, or by hand; any number of times.

It waits for tensorflow.python.client.session to be imported and then installs the engine and the observer. Nothing that happens
here reaches the program: a raise in a post-import hook would fail the user's `import tensorflow`. Disabled, it imports nothing.
"""

from __future__ import annotations

import os
from types import ModuleType

_DISABLED = frozenset({"", "0", "false", "no", "off"})  # the same words as env's, which is not imported when they apply


class _State:
    """This process's installation: one of the two places of the hook that own module state."""

    waiting = False  # the post-import hook is registered; wrapt cannot take it back
    wanted = False  # between start() and stop()
    installed: object | None = None  # installation.Installation


def start() -> None:
    """Install the hook when STEPD_ENABLE asks for it. Idempotent; raises nothing."""
    if os.environ.get("STEPD_ENABLE", "").lower() in _DISABLED or _State.wanted:
        return
    try:
        _State.wanted = True
        _arm()
    except Exception as error:  # fail open: the interpreter is starting up, and the program must not notice
        _tell(f"the hook is off: {type(error).__name__}: {error}")


def stop() -> None:
    """Take everything off that `start` put on: sessions are as TensorFlow made them, the channel is closed."""
    installed, _State.installed, _State.wanted = _State.installed, None, False
    if installed is not None:
        try:
            installed.uninstall()  # type: ignore[attr-defined]
        except Exception as error:  # fail open: what cannot be taken off stays, and the program goes on
            _tell(f"the hook could not be taken off: {type(error).__name__}: {error}")


def _arm() -> None:
    import sys

    from stepd.hook.compat import SESSION_MODULE

    loaded = sys.modules.get(SESSION_MODULE)
    if loaded is not None and hasattr(loaded, "BaseSession"):
        _session_imported(loaded)
        return
    if _State.waiting:
        return
    import wrapt

    wrapt.register_post_import_hook(_session_imported, SESSION_MODULE)
    _State.waiting = True


def _session_imported(module: ModuleType) -> None:
    if not _State.wanted or _State.installed is not None:
        return
    try:
        from stepd.hook import installation

        _State.installed = installation.install(module, os.environ)
    except Exception as error:  # fail open: see the module's docstring
        _tell(f"the hook is off: {type(error).__name__}: {error}")


def _tell(message: str) -> None:
    try:
        from stepd.hook import log

        log.tell_operator(message)
    except Exception:  # even the log is broken, and there is nobody left to tell
        return
