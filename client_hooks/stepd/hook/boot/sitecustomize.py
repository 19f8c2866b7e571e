"""What stepd-run puts on PYTHONPATH, for interpreters that do not read stepd's start-up file: starts the hook, then goes away.

The program's own sitecustomize runs next, and sys.path and PYTHONPATH become what they were before stepd-run.
"""

import importlib.util
import os
import sys


def _leave(folder: str) -> None:
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != folder]
    if entries == [""] or not entries:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = os.pathsep.join(entries)


def _start() -> None:
    try:
        from stepd.hook.autostart import start
    except ImportError as error:
        if importlib.util.find_spec("tensorflow") is not None:
            sys.stderr.write(f"stepd: the hook is off: stepd cannot be imported by {sys.executable}: {error}\n")
        return
    start()


def _chain() -> None:
    """Import the sitecustomize that this one hides, under its own name."""
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401 - the program's
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if mine is not None:
            sys.modules["sitecustomize"] = mine  # the import in progress expects it


_leave(os.environ.pop("STEPD_LAUNCHER_PATH", "") or os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - start-up is kept cheap
_start()
_chain()
