"""What takes the place of a few functions under TensorFlow's BaseSession. The only module that patches anything of TensorFlow's.

Most of the patches are on the C API's Python module, so that BaseSession's own methods, and their frames in stack traces, stay.
A raw session that is not in `engines` (made before, or not to be mirrored) runs TensorFlow's own code.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors

from stepd.hook.engine import capi, error_words, opening, patches
from stepd.hook.engine.answers import (
    answered,
    current,
    delete_buffer,
    engines,
    get_buffer,
    hide_frames,
    own_error,
    release_callable,
    session_run,
)
from stepd.hook.engine.session_engine import SessionEngine
from stepd.hook.engine.settings import EngineSettings
from stepd.hook.engine.staying import sessions_stay
from stepd.hook.log import logger as log
from stepd.hook.ports import ObserverPort

_creating = threading.local()
_installed: list[tuple[ObserverPort | None, EngineSettings]] = []
# Engines by the id of the BaseSession that owns them while it lives.
_owners: dict[int, SessionEngine] = {}


def install(observer: ObserverPort | None, settings: EngineSettings) -> None:
    """Patch TensorFlow. Raises RuntimeError when it lacks what the engine needs; calling it twice changes nothing."""
    if _installed:
        return
    lacks = capi.missing()
    if lacks:
        raise RuntimeError(f"this TensorFlow lacks {', '.join(lacks)}")
    _installed.append((observer, settings))
    patches.put(capi.BaseSession, _SESSION_PATCHES)
    patches.put(capi.c, _C_PATCHES)


def uninstall() -> None:
    """Give TensorFlow its own functions back once no mirrored session is open; new sessions are plain at once."""
    if not _installed:
        return
    _installed.clear()
    if not _owners:
        patches.remove()


# -- sessions: made, extended, closed -------------------------------------------------------------------------------------


def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
    """BaseSession.__init__: the session is made on a mirror of its graph."""
    engine = _owners.get(id(self))
    if engine is not None and engine.session() is not self:
        _forget(id(self))  # of one that lay here and whose class did not have BaseSession end it
    _creating.session = self
    try:
        patches.original(capi.BaseSession, "__init__")(self, target, graph, config)
    except BaseException as e:
        hide_frames(e)
        raise
    finally:
        _creating.session = None
    engine = _owners.get(id(self))
    if engine is not None:
        engines.answers(engine, self._session)
        engine.opened(self._session)


def new_session_ref(graph: Any, options: Any) -> Any:
    """TF_NewSessionRef, called inside BaseSession.__init__: puts an empty mirror in the place of the user's graph."""
    session = getattr(_creating, "session", None)
    if session is not None:
        _forget(id(session))  # the one that it was, if it is made once more
    if session is None or not _installed:
        return _made(graph, options)
    _creating.session = None
    observer, settings = _installed[0]
    opened = opening.opening(session, settings)
    if opened.asks:
        capi.set_session_options(options, opened.target if opened.cluster is not None else None, opened.config)
    raw = None
    with contextlib.suppress(errors.NotFoundError):  # no such kind of target
        raw = _made(opened.mirror.graph.handle, options)
    if raw is None:  # what is said of that names the config, which is to be the program's
        capi.set_session_options(options, None, config_pb2.ConfigProto() if opened.plain is None else opened.plain)
        return _made(graph, options)
    engine = opened.engine(session, observer, settings)
    engine.registry = engines
    _owners[id(session)] = engine
    return raw


def _made(graph: Any, options: Any) -> Any:
    """A raw session that nobody takes for one that a restart has replaced."""
    return engines.fresh(functools.partial(patches.original(capi.c, "TF_NewSessionRef"), graph, options), capi.delete_session)


def delete(self: Any) -> None:
    """BaseSession.__del__. Where Python has to look for cycles it clears weak references first, so that one to the session would
    say that it is gone while finalizers of the program still run steps."""
    try:
        patches.original(capi.BaseSession, "__del__")(self)
    finally:  # what TensorFlow raises, of a session that was never made, is told as plainly
        try:
            _forget(id(self))
        except Exception:
            if not sys.is_finalizing():  # then modules may be empty already
                log.exception("a session that is gone was not forgotten")


def _forget(owner: int) -> None:
    """The program's session is gone."""
    engine = _owners.pop(owner, None)
    if engine is not None:
        engine.close()
        engine.forget()
        engines.dismiss(engine, engine.raw)
    if not _owners and not _installed:
        patches.remove()


def _engine_of(session: Any) -> SessionEngine | None:
    """The engine of a session, or of one whose attributes it shares."""
    return _owners.get(id(session)) or engines.get(getattr(session, "_session", None))


def extend_graph(self: Any) -> None:
    """BaseSession._extend_graph."""
    engine = _engine_of(self)
    if engine is not None:
        try:
            engine.extend()
            return
        except BaseException as e:  # the program's fault or the hook's: TensorFlow says which
            if not engine.has_refused(e):
                hide_frames(e)
                raise
            if not (engine.ran or engine.closed or engine.was_reset):
                _fall_back(self, engine, e)
                engine = None
    # TensorFlow's own method meets the same error, and raises it with its own frames.
    _creating.extending = True
    try:
        patches.original(capi.BaseSession, "_extend_graph")(self)
    except BaseException as e:
        hide_frames(e)
        if engine is not None:
            error_words.repair(engine, e)
        raise
    finally:
        _creating.extending = False
    if engine is not None:
        engine.raise_unsent()


def extend_session(raw: Any) -> None:
    """ExtendSession, which a class of the program's may call in a `_extend_graph` of its own."""
    engine = None if getattr(_creating, "extending", False) else engines.get(raw)
    if engine is not None:
        try:
            engine.extend()
            return
        except BaseException as e:  # TensorFlow says what is wrong
            if not engine.has_refused(e):
                hide_frames(e)
                raise
            log.debug("session %s was not extended", engine.session_id, exc_info=True)
    try:
        capi.extend_session(raw)
        if engine is not None:
            engine.raise_unsent()
    except BaseException as e:
        if engine is not None:
            own_error(engine, e)
        raise


def _fall_back(session: Any, engine: SessionEngine, error: Exception) -> None:
    """Nothing ran yet: give the session the user's own graph and say why. TensorFlow then raises its own errors itself. Of several
    threads that begin at once one does it, while no other extends the session."""
    with engine.lock:
        if engine.raw is None:
            return
        engines.dismiss(engine, engine.raw)
        engine.raw, old = None, session._session
        if engine.is_named():
            capi.delete_session(old)
        with session._graph._c_graph.get() as graph:
            make = functools.partial(capi.new_session, graph, session._target, engine.plain_config)
            session._session = engines.fresh(make, capi.delete_session)
        _owners.pop(id(session), None)
        if not engine.is_named():
            capi.delete_session(old)
    engine.close()
    log.info("session %s runs without stepd, its graph could not be mirrored: %s", engine.session_id, error)


def close(self: Any) -> None:
    """BaseSession.close."""
    engine = _engine_of(self)
    if engine is not None:
        engine.close()
        if engine.last_devices is not None:  # the session on its workers has been closed by a reset, and would say so
            self._closed = True
    try:
        patches.original(capi.BaseSession, "close")(self)
    except BaseException as e:
        hide_frames(e)
        raise


def list_devices(self: Any) -> list[Any]:
    """BaseSession.list_devices, without what chaos has added; devices keep the numbers that they had when first asked for."""
    engine = _engine_of(self)
    if engine is not None and engine.last_devices is not None and not self._closed:
        return list(engine.last_devices)
    try:
        found = patches.original(capi.BaseSession, "list_devices")(self)
    except BaseException as e:
        hide_frames(e)
        raise
    for device in found if engine is not None else ():
        capi.set_incarnation(device, engine.incarnations.setdefault(device.name, device.incarnation))
    return [device for device in found if engine is None or device.name not in engine.added_devices]


def reset(target: Any, containers: Any = None, config: Any = None) -> None:
    """TF_Reset. TensorFlow closes all sessions of the process that name no target, not knowing those on local workers: another one
    in the place of such a session would go on where it does not."""
    try:
        with sessions_stay:
            patches.original(capi.c, "TF_Reset")(target, containers, config)
    finally:
        for engine in [] if target else list(_owners.values()):
            if not engine.target:
                engine.bound, engine.was_reset = "the program has reset it", True
                session = engine.session()
                if engine.cluster is not None and session is not None and not session._closed:
                    engine.last_devices = list_devices(session)
                    capi.close_session(engine.raw)


_SESSION_PATCHES: dict[str, Any] = {
    "__init__": init,
    "__del__": delete,
    "_extend_graph": extend_graph,
    "close": close,
    "list_devices": list_devices,
}
_C_PATCHES: dict[str, Any] = {
    "ExtendSession": extend_session,
    "TF_CloseSession": current(capi.close_session),
    "TF_DeleteBuffer": delete_buffer,
    "TF_GetBuffer": get_buffer,
    "TF_NewSessionRef": new_session_ref,
    "TF_Reset": reset,
    "TF_SessionListDevices": current(capi.list_session_devices),
    "TF_SessionMakeCallable": answered(capi.make_callable, lambda engine: engine.callables.make),
    "TF_SessionPRunSetup_wrapper": answered(capi.prun_setup, lambda engine: engine.partial_runs.setup),
    "TF_SessionPRun_wrapper": answered(capi.prun_session, lambda engine: engine.partial_runs.run),
    "TF_SessionReleaseCallable": release_callable,
    "TF_SessionRunCallable": answered(capi.run_callable, lambda engine: engine.callables.run),
    "TF_SessionRun_wrapper": session_run,
}
