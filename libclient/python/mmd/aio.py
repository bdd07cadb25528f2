# SPDX-License-Identifier: Apache-2.0
"""The events of a client, and steps that run on, for asyncio."""

from __future__ import annotations

import asyncio
import errno
import os

from mmd._client import Client, Event, EventKind
from mmd._error import Error
from mmd._step import Running, StepInfo


class _Events:
    """The iterator. One task at a time may wait for the events of a client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._over = False

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> Event:
        while not self._over:
            if self._client.closed:
                break
            event = self._client.next_event()
            if event is None:
                await self._wait()
                continue
            self._over = event.kind == EventKind.DISCONNECTED
            return event
        raise StopAsyncIteration

    async def _wait(self) -> None:
        """Until an event is queued, or the client is closed."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        def closed() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake)

        if not self._client._watch(closed):
            raise Error(errno.EBUSY, "another task or event loop waits for this client's events")
        # A descriptor of our own: the client's may be closed, and its number used again, before
        # this loop learns of it.
        fd = os.dup(self._client.fd)
        try:
            loop.add_reader(fd, wake)
            await ready
        finally:
            loop.remove_reader(fd)
            os.close(fd)
            self._client._unwatch()


def events(client: Client) -> _Events:
    """The client's events as an async iterator, in the running loop. Never blocks the loop.

    It ends after DISCONNECTED, or when the client is closed. While one task waits for the next
    event, a second one, or one of another loop, gets an Error with EBUSY.
    """
    return _Events(client)


async def ended(step: Running, timeout: float | None = None) -> StepInfo:
    """The outcome of a step that runs on, as Running.wait(). Never blocks the loop.

    It waits in a thread of the loop's executor. If the task is cancelled the outcome is lost.
    """
    return await asyncio.to_thread(step.wait, timeout)
