"""A reset of TensorFlow's goes through the sessions of the process while no other thread takes one off its list."""

from __future__ import annotations

import threading
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import capi, patches  # noqa: E402
from stepd.hook.engine.staying import sessions_stay  # noqa: E402


def test_no_session_is_deleted_while_the_program_resets(hooked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow takes the sessions from its list first, and calls each then: it would call one that is gone."""
    hooked()
    with tf.Graph().as_default() as graph:
        tf.constant(1.0)
        with graph._c_graph.get() as handle:
            session = capi.new_session(handle, None, None)
    held: list[tuple[str, bool]] = []
    close, original = capi.close_session, patches.original

    def is_held(what: str) -> None:
        """As another thread sees it."""
        lock = sessions_stay._lock
        asking = threading.Thread(target=lambda: held.append((what, not lock.acquire(blocking=False))))
        asking.start()
        asking.join()

    monkeypatch.setattr(capi, "close_session", lambda raw: (is_held("close"), close(raw)))
    resetting = {"TF_Reset": lambda *_: is_held("reset")}
    monkeypatch.setattr(patches, "original", lambda where, name: resetting.get(name) or original(where, name))
    tf.Session.reset("")
    capi.delete_session(session)
    assert held == [("reset", True), ("close", True)]
