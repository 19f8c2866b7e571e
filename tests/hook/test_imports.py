"""What the hook imports: nothing of Python's library that TensorFlow does not, so that a program's own module of such a name,
beside its script, is found by nobody else and found by the program."""

from __future__ import annotations

import json
import subprocess
import sys

# `stepd-run` is a process of its own until it becomes the program, and asks for what runs scripts.
PROGRAM = """
import importlib, json, pkgutil, sys
import tensorflow
before = set(sys.modules)
import stepd.hook
import grpc
for found in pkgutil.walk_packages(stepd.hook.__path__, "stepd.hook."):
    if found.name != "stepd.hook.launcher":
        importlib.import_module(found.name)
print(json.dumps(sorted(name for name in set(sys.modules) - before if name.split(".")[0] in sys.stdlib_module_names)))
"""


def test_the_hook_imports_no_module_of_pythons_that_tensorflow_does_not() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == []
