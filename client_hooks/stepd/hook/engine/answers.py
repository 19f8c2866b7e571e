"""What takes the place of TensorFlow's C functions that run something on a raw session, where an engine runs that session.

Errors leave with the words and the traceback that they would have plainly. It patches nothing, and makes no session.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepd.hook.engine import capi, error_words, names
from stepd.hook.engine.registry import Registry
from stepd.hook.engine.session_engine import SessionEngine

_ROOM = str(Path(__file__).parent)
engines: Registry[SessionEngine] = Registry()
"""By the raw session they run on now."""


def hide_frames(error: BaseException) -> None:
    """Take the frames of the hook out of a traceback, but for the first."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        if entry.tb_next.tb_frame.f_code.co_filename.startswith(_ROOM):
            entry.tb_next = entry.tb_next.tb_next
        else:
            entry = entry.tb_next


def own_error(engine: SessionEngine, error: BaseException) -> None:
    """An error on its way to the program: its words and its traceback are as they would be plainly."""
    hide_frames(error)
    names.without_frames(error, _ROOM)
    error_words.repair(engine, error)


def session_run(raw: Any, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any) -> Any:
    """TF_SessionRun_wrapper."""
    engine = engines.get(raw)
    if engine is None:
        return capi.run_session(raw, options, feeds, fetches, targets, metadata)
    try:
        return engine.runs.run(options, feeds, fetches, targets, metadata)
    except BaseException as e:
        undone = engine.routing.undo(e)
        if undone is None or not undone.again:
            own_error(engine, e)
            raise
    try:
        result = engine.runs.run(options, feeds, fetches, targets, metadata)
    except BaseException as e:
        engine.routing.acquit(undone, e)
        own_error(engine, e)
        raise
    engine.routing.blame(undone)
    return result


def answered(plainly: Callable[..., Any], own: Callable[[SessionEngine], Callable[..., Any]]) -> Callable[..., Any]:
    """A C function on a raw session: `own` gives the engine's own, `plainly` is what a session without one runs."""

    def call(raw: Any, *args: Any) -> Any:
        engine = engines.get(raw)
        if engine is None:
            return plainly(raw, *args)
        try:
            return own(engine)(*args)
        except BaseException as e:
            own_error(engine, e)
            raise

    return call


def current(plainly: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A C function on a raw session, which an object that took over a session's attributes may call with one that is gone."""

    def call(raw: Any) -> Any:
        engine = engines.get(raw)
        return plainly(raw if engine is None else engine.raw)

    return call


def release_callable(raw: Any, handle: Any) -> None:
    """TF_SessionReleaseCallable."""
    engine = engines.get(raw)
    if engine is None:
        capi.release_callable(raw, handle)
    else:
        engine.callables.release(handle)


def get_buffer(buffer: Any) -> Any:
    """TF_GetBuffer: metadata of a run on a copy reads with the user's names."""
    return capi.repaired_buffers.pop(buffer, None) or capi.get_buffer(buffer)


def delete_buffer(buffer: Any) -> None:
    """TF_DeleteBuffer: a later buffer may lie where this one lay, and pass for it."""
    capi.repaired_buffers.pop(buffer, None)
    capi.delete_buffer(buffer)
