"""Errors of spread steps read as those of one device."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import names

FAILED = "Input to reshape is a tensor with 3 values, but the requested shape has 4\n\t [[{{node Reshape}}]]"


def several(*errors: str) -> str:
    listed = "".join(f"  ({i}) {error}\n" for i, error in enumerate(errors))
    return f"{len(errors)} root error(s) found.\n{listed}0 successful operations.\n0 derived errors ignored."


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([f"INVALID_ARGUMENT: {FAILED}\n\t [[mul/_1]]", f"INVALID_ARGUMENT: {FAILED}\n\t [[Kept]]"], f"{FAILED}\n\t [[Kept]]"),
        (["CANCELLED: RecvAsync is cancelled.", f"INVALID_ARGUMENT: {FAILED}\n\t [[Kept]]"], f"{FAILED}\n\t [[Kept]]"),
        ([f"INVALID_ARGUMENT: {FAILED}\n\t [[mul/_1]]", f"INVALID_ARGUMENT: {FAILED}"], FAILED),
    ],
)
def test_one_of_several_errors_is_told(errors: list[str], told: str) -> None:
    assert names.one_error(several(*errors)) == told


def test_the_hint_that_every_device_adds_is_told_once() -> None:
    hint = "\nHint: If you want to see a list of allocated tensors when OOM happens, add this to RunOptions.\n"
    failed = "OOM when allocating tensor\n\t [[{{node large}}]]"
    assert names.one_error(f"{failed}{hint}{hint}\n\t [[Sum/_7]]{hint}".rstrip("\n")) == f"{failed}{hint}".rstrip("\n")
    assert names.one_error(failed + hint) == failed + hint
