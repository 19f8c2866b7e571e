"""Local workers' words become those of a direct session."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from tensorflow.python.framework import errors

from stepd.hook.engine import worker_words
from stepd.hook.engine.kinds import step_kind

TASK = "/job:localhost/replica:0/task:2/device:CPU:0"
DEAD = (
    "Failed to fetch outputs for step 41809528975138521. (Original error message: The tensor returned for "
    f"{TASK};c85bbc0b7e2f1ad3;{TASK};in/b:1;0:0 was not valid.)"
)


def test_a_fetch_without_a_value() -> None:
    error = errors.InternalError(None, None, DEAD)
    worker_words.tell_plainly(error, step_kind([], ["z:0", "in/b:1", "a:0"], []))
    assert type(error) is errors.InvalidArgumentError and error.error_code == errors.INVALID_ARGUMENT
    assert str(error) == "Retval[1] does not have value"


def test_of_what_was_not_fetched_nothing_is_known() -> None:
    error = errors.InternalError(None, None, DEAD)
    worker_words.tell_plainly(error, step_kind([], ["z:0"], []))
    assert type(error) is errors.InternalError and str(error) == DEAD


def test_what_a_fed_tensor_is_called() -> None:
    error = errors.InvalidArgumentError(None, None, "Shape of tensor _recv_in/x_0_S121 [1], _recv_other_0_S3")
    worker_words.tell_plainly(error, step_kind(["y:0", "in/x:0", "a:0"], ["z:0"], []))
    assert str(error) == "Shape of tensor _arg_in/x_0_1 [1], _recv_other_0_S3"


def test_which_devices_there_are() -> None:
    workers = ", ".join(f"/job:localhost/replica:0/task:{k}/device:CPU:0" for k in range(3))
    text = "assigned to /device:GPU:7 but available devices are [ {} ]. Make sure"
    one = text.format("/job:localhost/replica:0/task:0/device:CPU:0")
    assert worker_words.of_one_task(text.format(workers), 0) == one
    assert worker_words.of_one_task(text.format(workers), 2).count("device:CPU:") == 2
