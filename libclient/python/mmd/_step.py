# SPDX-License-Identifier: Apache-2.0
"""A forward pass, during which mmd changes no mapping of the model."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from mmd._client import nanoseconds, sized
from mmd._error import Error, StepVoid
from mmd._library import ffi, lib

if TYPE_CHECKING:
    from mmd._client import Client

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class StepInfo:
    """How a step went."""

    step_ns: int
    """From its begin to its synchronised end."""
    stall_ns: int
    """The part of it that streams waited at gates; 0 if not timed."""
    gated: int
    """Layers that cycled."""
    timed: bool


class Step:
    """One step after the other, as a with-block or by run().

    with Step(client): begins a step, and ends it; an exception in the block abandons it. The end
    raises StepVoid if mmd aborted the gates: nothing of the step may be published, and it is to be
    repeated, which run() does. A thread has one step open at a time. While several are open, only
    the thread that began a step can end it.
    """

    def __init__(self, client: Client, stream: int = 0) -> None:
        """stream has the step's work, and is synchronised at its end."""
        self._client = client
        self.stream = stream
        self.info: StepInfo | None = None
        """Of the last step that ended well."""
        self.voids = 0
        """How often a step of this object was void."""

    def begin(self) -> None:
        """Opens a step. Blocks while a plan change is in progress, and for the turn."""
        self._client._call(lib.mm_step_begin, None)

    def end(self) -> StepInfo:
        """Synchronises the streams and closes the step. Blocks. In a step, by its thread.

        StepVoid: the results are void, repeat it. The step is closed then, too.
        """
        info = sized("mm_step_info")
        try:
            self._client._call(lib.mm_step_end, None, ffi.cast("void *", self.stream), info)
        except StepVoid:
            self.voids += 1
            raise
        self.info = StepInfo(info.step_ns, info.stall_ns, info.gated, bool(info.timed))
        return self.info

    def end_async(self) -> Running:
        """Lets go of the step, which runs on. Never blocks. In a step, by its thread.

        The thread may begin the next step at once, on the same stream; at most two of its steps may
        not have been waited for. Layers that the step has not begun are passed over.
        """
        number = ffi.new("uint64_t *")
        self._client._call(lib.mm_step_end_async, None, ffi.cast("void *", self.stream), number)
        return Running(self, int(number[0]))

    def abandon(self) -> None:
        """Closes a step that broke off between layers. Blocks. In a step, by its thread."""
        self._client._call(lib.mm_step_abandon, None, ffi.cast("void *", self.stream))

    def join(self, stream: int) -> None:
        """Has the step's end wait for another stream, too. Never blocks; in a step."""
        self._client._call(lib.mm_step_join, None, ffi.cast("void *", stream))

    def run(self, work: Callable[[], Result],
            before: Callable[[], None] | None = None) -> Result:
        """Runs work() in a step, and again while the step is void; returns its last result.

        Blocks. Not in a step of this thread. work() must be repeatable: what it writes must not
        depend on what it has written before, unless before(), which is called in front of each try
        and outside of the step, undoes it. An exception in work() abandons the step.
        """
        while True:
            if before is not None:
                before()
            try:
                with self:
                    result = work()
                return result
            except StepVoid:
                pass

    def __enter__(self) -> Step:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        if error is None:
            self.end()
            return
        try:
            self.abandon()
        except Error as second:
            error.add_note(f"mmd: the step could not be abandoned: {second}")


class Running:
    """A step that runs on, from Step.end_async(). Its outcome is taken once, by wait()."""

    def __init__(self, step: Step, number: int) -> None:
        self._step = step
        self.number = number
        """Counts the client's steps of this kind."""

    def wait(self, timeout: float | None = None) -> StepInfo:
        """Waits for the end, and takes the outcome. Blocks. In a step or not; any thread.

        StepVoid: the results are void, and so are those of the steps that were begun before this is
        known: repeat them all, in their order. Error with ETIMEDOUT: it runs still.
        """
        info = sized("mm_step_info")
        step = self._step
        try:
            step._client._call(lib.mm_step_wait, None, self.number, nanoseconds(timeout), info)
        except StepVoid:
            step.voids += 1
            raise
        step.info = StepInfo(info.step_ns, info.stall_ns, info.gated, bool(info.timed))
        return step.info
