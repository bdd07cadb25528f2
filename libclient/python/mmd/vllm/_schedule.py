# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler with a pool that breathes: each schedule() asks mmd first."""

from __future__ import annotations

import functools
import select
import threading
import time
from typing import Any, Final

from mmd._error import Error
from mmd._plugin.tenant import MARK, RETRY_S
from mmd.vllm._blocks import Blocks
from mmd.vllm._engine import Engine, current
from mmd.vllm._versions import Unsupported

LOOK_S: Final = 1.0
# What touches requests and blocks, besides schedule().
LOCKED: Final = ("finish_requests", "reset_prefix_cache")


def refuse(config: Any) -> None:
    """Raises Unsupported for a scheduler that is not made of vLLM's: it would use all blocks."""
    from vllm.v1.core.sched.scheduler import Scheduler

    kind = config.get_scheduler_cls()
    if not issubclass(kind, Scheduler):
        raise Unsupported(f"--load-format mmd needs vLLM's scheduler, or one that is derived from "
                          f"it: vLLM has --scheduler-cls {kind.__name__}")


def install() -> None:
    """Has the scheduler of this process's engine breathe; again does nothing."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.__init__
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        engine = current()
        if engine is not None and engine.arena is not None and engine.pool is None:
            _attach(engine, self)

    setattr(init, MARK, True)
    Scheduler.__init__ = init


def _attach(engine: Engine, scheduler: Any) -> None:
    engine.pool = pool = Blocks(engine, scheduler)
    schedule, update = scheduler.schedule, scheduler.update_from_output

    @functools.wraps(schedule)
    def breathing(*args: Any, **kwargs: Any) -> Any:
        with engine.lock:
            engine.drain()
            engine.check()
            pool.grow()
            pool.serve()
            pool.want()
            return schedule(*args, **kwargs)

    @functools.wraps(update)
    def updated(*args: Any, **kwargs: Any) -> Any:
        with engine.lock:
            result = update(*args, **kwargs)
            if _is_idle(scheduler):
                pool.idle()
            return result

    scheduler.schedule, scheduler.update_from_output = breathing, updated
    for name in LOCKED:
        setattr(scheduler, name, _locked(engine, getattr(scheduler, name)))
    threading.Thread(target=_keep, args=(engine, scheduler, pool), name="mmd", daemon=True).start()


def _locked(engine: Engine, function: Any) -> Any:
    @functools.wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with engine.lock:
            return function(*args, **kwargs)

    return locked


def _is_idle(scheduler: Any) -> bool:
    return not any(scheduler.get_request_counts())


def _keep(engine: Engine, scheduler: Any, pool: Blocks) -> None:
    """Gives back what mmd reclaims while nothing runs, and no schedule() comes."""
    try:
        while engine.gone is None:
            if not select.select([engine.client.fd], [], [], LOOK_S)[0]:
                continue
            with engine.lock:
                if _is_idle(scheduler):
                    engine.drain()
                    pool.grow()
                    pool.serve()
                    continue
            time.sleep(RETRY_S)  # the next schedule() takes the event
    except (Error, OSError, ValueError):
        return  # the client was closed
