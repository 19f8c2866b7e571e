"""Which processes get the hook, and what the others are told."""

from __future__ import annotations

import pytest

from stepd.hook.compat import REQUIRED_C_API, REQUIRED_SESSION, missing_names, verdict


@pytest.mark.parametrize("version", ["2.12.0", "2.15.1", "2.21.0", "2.21.0-rc1"])
def test_supported(version: str) -> None:
    judged = verdict(version, (3, 11), "Linux", ())
    assert judged.active
    assert version in judged.reason


@pytest.mark.parametrize(
    ("version", "python", "system", "missing", "why"),
    [
        ("2.11.1", (3, 10), "Linux", (), "TensorFlow 2.11.1 is outside of the supported range 2.12 to 2.21"),
        ("2.22.0", (3, 12), "Linux", (), "TensorFlow 2.22.0 is outside"),
        ("1.15.5", (3, 10), "Linux", (), "TensorFlow 1.15.5 is outside"),
        ("2.15.0", (3, 9), "Linux", (), "Python 3.9 is older"),
        ("2.15.0", (3, 11), "Darwin", (), "Linux only"),
        ("nightly", (3, 11), "Linux", (), "'nightly' cannot be read"),
        ("2.15.0", (3, 11), "Linux", ("TF_NewSessionRef",), "lacks TF_NewSessionRef"),
    ],
)
def test_unsupported(version: str, python: tuple[int, int], system: str, missing: tuple[str, ...], why: str) -> None:
    judged = verdict(version, python, system, missing)
    assert not judged.active
    assert why in judged.reason


def test_missing_private_names_are_named() -> None:
    complete = type("BaseSession", (), dict.fromkeys(REQUIRED_SESSION))
    assert missing_names({"BaseSession": complete}, dict.fromkeys(REQUIRED_C_API)) == ()
    del complete._extend_graph
    assert missing_names({"BaseSession": complete}, {}) == ("BaseSession._extend_graph", *REQUIRED_C_API)
