"""What the hook changes in the ConfigProto of a session that it makes for the program. It must not know sessions."""

from __future__ import annotations

from typing import Any

from stepd.hook.engine.settings import EngineSettings
from stepd.hook.log import logger as log
from stepd.hook.order.native import provider


def for_chaos(config: Any, settings: EngineSettings) -> Any:
    """A copy of the program's `config` with the CPU devices that chaos asks for; None where it asks for none."""
    if settings.chaos is None or not settings.chaos.devices:
        return None
    more = type(config)()
    more.CopyFrom(config)
    more.device_count["CPU"] = max(settings.chaos.devices, config.device_count.get("CPU", 1))
    return more


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
