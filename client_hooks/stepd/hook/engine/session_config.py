"""What the hook changes in the ConfigProto of a session that it makes for the program. It must not know sessions."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from tensorflow.core.protobuf.config_pb2 import OptimizerOptions
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.framework import config as tf_config

from stepd.hook.engine.mirror import SMALLEST
from stepd.hook.engine.settings import EngineSettings
from stepd.hook.log import logger as log
from stepd.hook.order.native import provider

_LOGICAL_GPU_MB = 4096  # of what chaos divides a GPU into

# Versions have some of these.
_PRECISIONS = (
    "auto_mixed_precision", "auto_mixed_precision_mkl", "auto_mixed_precision_onednn_bfloat16", "auto_mixed_precision_cpu",
)  # fmt: skip

_AUTO_JIT = re.compile(r"--tf_xla_auto_jit=(?!(0|-1)\b)")
_CLUSTERS = "which rounds something else where its clusters are cut"


def for_chaos(config: Any, settings: EngineSettings, direct: bool = True) -> Any:
    """A copy of the program's `config` with the devices that chaos asks for; None where it asks for none.

    A GPU becomes several logical ones, except where the program itself divides it or says what part of it it wants, and for a
    session that is not `direct`, whose devices are its server's.
    """
    if settings.chaos is None or not settings.chaos.devices:
        return None
    more = type(config)()
    more.CopyFrom(config)
    if has_cpu(config):
        more.device_count["CPU"] = max(settings.chaos.devices, config.device_count.get("CPU", 1))
    gpus, wanted = more.gpu_options, direct and config.device_count.get("GPU", 1) > 0
    if wanted and not (gpus.experimental.virtual_devices or gpus.per_process_gpu_memory_fraction or gpus.visible_device_list):
        for _ in _physical_gpus():
            gpus.experimental.virtual_devices.add(memory_limit_mb=[_LOGICAL_GPU_MB] * settings.chaos.devices)
    return more


def has_cpu(config: Any) -> bool:
    """Does a program that asks for `config`, None if it has none, want a CPU? TensorFlow makes no session without."""
    return config is None or config.device_count.get("CPU", 1) > 0


@functools.cache
def _physical_gpus() -> tuple[str, ...]:
    return tuple(device.name for device in tf_config.list_physical_devices("GPU"))


def added_by_chaos(asked: Any, made: Any) -> tuple[str, ...]:
    """Full names of the devices that a direct session of config `made` has and one of `asked` would not have."""
    there = asked.device_count.get("CPU", 1) if asked is not None else 1
    added = [f"CPU:{k}" for k in range(there, made.device_count["CPU"])]
    divided = made.gpu_options.experimental.virtual_devices
    if divided and not (asked is not None and asked.gpu_options.experimental.virtual_devices):
        added += [f"GPU:{k}" for k in range(len(divided), sum(len(gpu.memory_limit_mb) for gpu in divided))]
    return tuple(f"/job:localhost/replica:0/task:0/device:{name}" for name in added)


def without_added(text: str, added: tuple[str, ...]) -> str:
    """TensorFlow's text as it would be without the `added` devices: its lists of devices, and where memory did not suffice."""
    for name in added:
        text = re.sub(rf", {re.escape(name)}(?!\d)", "", text)
        text = text.replace(f" on {name} by allocator", f" on {name.rpartition(':')[0]}:0 by allocator")
    return text


def smallest(config: Any) -> int:
    """Of how many ops Grappler rewrites a graph in a session of the program's `config`."""
    asked = 0 if config is None else config.graph_options.rewrite_options.min_graph_nodes
    return asked or SMALLEST


def bears_name(config: Any) -> bool:
    """Does the program name its session?"""
    return config is not None and bool(config.experimental.HasField("session_metadata"))


def kept_as_it_is(config: Any, served: bool = False) -> str:
    """Why a session of the program's `config` may not be switched; "" where it may. `served`: by the program's own servers?"""
    if _AUTO_JIT.search(os.environ.get("TF_XLA_FLAGS", "")):
        return f"XLA chooses what it compiles (TF_XLA_FLAGS), {_CLUSTERS}"
    if config is None:
        return ""
    options = config.graph_options
    if options.optimizer_options.global_jit_level > OptimizerOptions.DEFAULT:
        return f"XLA chooses what it compiles (global_jit_level), {_CLUSTERS}"
    if options.build_cost_model > 1 or (options.build_cost_model and options.build_cost_model_after > 0):
        # Executors count their own runs.
        return "the program counts the session's runs by build_cost_model, which would begin anew"
    if served and options.enable_bfloat16_sendrecv:
        return "the program has rounded what its tasks send each other (enable_bfloat16_sendrecv), which would be something else"
    if config.experimental.executor_type == "SINGLE_THREADED_EXECUTOR":
        # It would wait for ever for what another one is to send.
        return "the program chose SINGLE_THREADED_EXECUTOR, which cannot wait for another device"
    rewrites = options.rewrite_options
    if rewrites.memory_optimization not in (RewriterConfig.DEFAULT_MEM_OPT, RewriterConfig.NO_MEM_OPT):
        # Which values are computed again, and when, hangs on all that a device has; some steps on several devices never end.
        return "the program chose a memory_optimization, which does something else where ops lie elsewhere"
    if rewrites.arithmetic_optimization == RewriterConfig.AGGRESSIVE:
        # Sums of more than two terms are made of the additions that a device has (`combine_add_to_addn`).
        return "the program chose an aggressive arithmetic_optimization, which adds up otherwise where ops lie elsewhere"
    if RewriterConfig.ON in (getattr(rewrites, name) for name in _PRECISIONS if hasattr(rewrites, name)):
        return "the program chose an auto_mixed_precision, which rounds something else where ops lie elsewhere"
    return ""


def with_executor(config: Any, own: Any, settings: EngineSettings) -> tuple[Any, str]:
    """A direct session's config, `own` where the hook has one already, with the native executor, or why it goes without."""
    try:
        executor, why = provider.executor_type(settings.order, config.experimental.executor_type)
    except Exception as e:  # the session is made without; the order's report says why
        log.exception("looking for the native executor failed (STEPD_ORDER=%s)", settings.order)
        executor, why = "", f"looking for it failed: {e!r}"
    if not executor:
        return own, why
    more = type(config)()
    more.CopyFrom(config if own is None else own)
    more.experimental.executor_type = executor
    return more, ""


def at_workers(config: Any, cluster: Any, settings: EngineSettings) -> str:
    """Why a session of the program's `config` on a cluster of local workers goes without the native executor; "" when it has it."""
    chosen = config.experimental.executor_type if config is not None else ""
    try:
        return provider.at_workers(settings.order, chosen, cluster.tables.keep)
    except Exception as e:  # as above
        log.exception("giving the local workers the native executor failed (STEPD_ORDER=%s)", settings.order)
        return f"giving it to the local workers failed: {e!r}"
