"""What is said when something that was asked of a session ends in an error: a refusal in its own words, a fault with its traceback.

It must not know what was attempted, nor go on or back: whoever caught the error does.
"""

from __future__ import annotations

from tensorflow.python.framework import errors

from stepd.hook.engine.queues import QueueObstacleError
from stepd.hook.engine.refusals import SwitchRefusedError
from stepd.hook.engine.side import StateChangedError
from stepd.hook.log import logger as log

_REFUSALS = (SwitchRefusedError, StateChangedError, QueueObstacleError)


def reason(error: Exception, session_id: str, what: str) -> str:
    """Why `what` (words for the log: "strategy s1 was not put in force") did not happen, for its outcome; never empty.

    A fault of the hook's own is named with its type; what TensorFlow says, like a refusal, stands for itself.
    """
    refused = isinstance(error, _REFUSALS)
    text = str(error) if refused or isinstance(error, errors.OpError) else f"{type(error).__name__}: {error}"
    if refused:
        log.info("session %s: %s: %s", session_id, what, text)
    else:
        log.error("session %s: %s: %s", session_id, what, text, exc_info=error)
    return text or type(error).__name__
