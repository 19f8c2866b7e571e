"""Which error of a step is heard of: plainly that of the op that comes first, on a copy that of what the op waits for.

Where two ops fail of what is fed, and on a copy the one waits for updates that need the other, the one is run by itself once the
other has failed. It must not know how a copy has it wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import errors

from stepd.hook.engine import capi, hidden, names
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.kinds import Kind
from stepd.hook.log import logger as log

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

_OF_OTHERS = (errors.CancelledError, errors.OutOfRangeError, errors.DeadlineExceededError, errors.AbortedError)
_NODE = re.compile(r"\{\{node ([^{}]+)\}\}|\[\[([^\[\]{}]+)\]\]")


def tell(engine: SessionEngine, kind: Kind, feeds: Mapping[Any, Any], error: BaseException) -> None:
    """Have the `error` of a run of `kind` on a copy say what is heard of first plainly. `feeds`: the user's TF_Output -> value."""
    if not isinstance(error, errors.OpError) or isinstance(error, _OF_OTHERS) or engine.closed or not feeds:
        return
    try:
        if earlier := _earlier(engine, kind, names.user_text(str(error.message), engine.routing.user_names())):
            capi.run_own(engine.raw, feeds, [], earlier)
    except errors.OpError as e:
        if not isinstance(e, _OF_OTHERS):
            hidden.become(error, e)
    except Exception as e:  # the program has an error already
        log.debug("what fails first of a step is not known: %s", e)


def _earlier(engine: SessionEngine, kind: Kind, text: str) -> list[Any]:
    """What plainly would have failed before the op that `text` names, if it fails: the program's own ops."""
    for view, _ in hidden.seen(engine, kind):
        if (failed := _failed(view, text)) is not None:
            return [engine.mirror.operation(end) for end in engine.switcher().sight.heard_before(kind.step, failed)]
    return []


def _failed(view: GraphView, text: str) -> str | None:
    """The op of the graph that an error names."""
    return next((name for name in (found[1] or found[2] for found in _NODE.finditer(text)) if name in view.nodes), None)
