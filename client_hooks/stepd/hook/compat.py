"""Can the hook be active in this process, and if not, why: the verdict that the operator reads in `stepctl show`.

It looks at versions, at the platform and at the private names of TensorFlow that the engine needs. It changes nothing.
"""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

OLDEST_TENSORFLOW = (2, 12)
NEWEST_TENSORFLOW = (2, 21)
OLDEST_PYTHON = (3, 10)

# Private names that interception stands on; a build without one of them leaves the hook off instead of failing later.
SESSION_MODULE = "tensorflow.python.client.session"
C_API_MODULE = "tensorflow.python.client.pywrap_tf_session"
REQUIRED_SESSION = (
    "_call_tf_sessionrun",
    "_call_tf_sessionprun",
    "_extend_graph",
    "_make_callable_from_options",
    "_do_call",
)
REQUIRED_C_API = (
    "TF_NewSessionRef",
    "TF_NewSessionOptions",
    "TF_CloseSession",
    "TF_SessionRun_wrapper",
    "TF_SessionPRunSetup_wrapper",
    "TF_SessionPRun_wrapper",
    "TF_GraphToGraphDef",
    "TF_GraphImportGraphDefWithResults",
    "TF_NewBuffer",
    "TF_GetBuffer",
    "ExtendSession",
)


@dataclass(frozen=True)
class Compatibility:
    """`active`: the hook may be installed. `reason`: why not, or with which limits; never empty."""

    active: bool
    reason: str
    tensorflow_version: str = ""


def verdict(
    tensorflow_version: str,
    python_version: tuple[int, int],
    system: str,
    missing: tuple[str, ...],
) -> Compatibility:
    """Judge a process by its versions, its platform and the `missing` private names (pure, for tests and for `examine`)."""
    numbers = _version(tensorflow_version)
    low, high = ".".join(map(str, OLDEST_TENSORFLOW)), ".".join(map(str, NEWEST_TENSORFLOW))
    if system != "Linux":
        why = f"stepd runs on Linux only, this is {system or 'an unknown system'}"
    elif python_version < OLDEST_PYTHON:
        why = f"Python {python_version[0]}.{python_version[1]} is older than {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]}"
    elif numbers is None:
        why = f"the TensorFlow version {tensorflow_version!r} cannot be read"
    elif not OLDEST_TENSORFLOW <= numbers <= NEWEST_TENSORFLOW:
        why = f"TensorFlow {tensorflow_version} is outside of the supported range {low} to {high}"
    elif missing:
        why = f"this build of TensorFlow {tensorflow_version} lacks {', '.join(missing)}"
    else:
        return Compatibility(True, f"TensorFlow {tensorflow_version} is supported ({low} to {high})", tensorflow_version)
    return Compatibility(False, why, tensorflow_version)


def examine(session_module: ModuleType) -> Compatibility:
    """The verdict on this process. `session_module` is tensorflow.python.client.session, just imported."""
    version = importlib.import_module("tensorflow.python.framework.versions")
    return verdict(
        str(version.VERSION),
        (sys.version_info[0], sys.version_info[1]),
        platform.system(),
        missing_names(vars(session_module), vars(importlib.import_module(C_API_MODULE))),
    )


def missing_names(session: Mapping[str, object], c_api: Mapping[str, object]) -> tuple[str, ...]:
    """Private names that interception needs and these modules do not have."""
    base = session.get("BaseSession")
    methods = tuple(f"BaseSession.{name}" for name in REQUIRED_SESSION if not hasattr(base, name))
    return methods + tuple(name for name in REQUIRED_C_API if name not in c_api)


def _version(text: str) -> tuple[int, int] | None:
    parts = text.split(".")
    if len(parts) < 2 or not parts[0].isdecimal() or not parts[1].isdecimal():
        return None
    return int(parts[0]), int(parts[1])
