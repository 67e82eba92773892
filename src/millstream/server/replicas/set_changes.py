"""A master's requests to the controllers to change the sync state set, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from millstream.model.errors import MillstreamError, NameRefused
from millstream.replication.source import LogSource
from millstream.server.replicas.fetch_port import FetchPort
from millstream.server.replicas.membership import Membership

__all__ = ["SetChanges"]

_log = logging.getLogger(__name__)

RETRY_S: Final = 0.2
"""Seconds after a request that was refused or got lost, before the next one."""


class SetChanges:
    """`on_refused` is called where a controller refuses one: the set may be another one than this master knows."""

    def __init__(self, membership: Membership, port: FetchPort, on_refused: Callable[[], None]) -> None:
        self._membership = membership
        self._port = port
        self._on_refused = on_refused
        self._asking: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_unheard = False
        """Whether no controller answered the last request."""

    def review(self) -> None:
        """Ask for another set where that is due; after each fetch, and now and then."""
        source = self._port.source
        if source is None or self._asking is not None or self._is_closed:
            return
        if source.sync_set.next_change(asyncio.get_running_loop().time()) is not None:
            self._asking = asyncio.get_running_loop().create_task(self._ask(source), name="alter-set")
            self._asking.add_done_callback(self._end)

    def close(self) -> None:
        """Ask for nothing any more."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("The set cannot be changed.", exc_info=task.exception())

    async def _ask(self, source: LogSource) -> None:
        sync_set = source.sync_set
        wanted = sync_set.pending
        assert wanted is not None
        try:
            members, set_epoch = await self._membership.alter(wanted)
            self._is_unheard = False
        except NameRefused as error:
            self._is_unheard = False
            _log.warning("The controller refuses the set %s: %s", sorted(wanted.members), error)
            sync_set.note_refused(asyncio.get_running_loop().time())
            self._on_refused()
            await asyncio.sleep(RETRY_S)
        except MillstreamError as error:
            if not self._is_unheard:
                words = "The set %s is asked for again until controllers answer: %s"
                _log.warning(words, sorted(wanted.members), error)
            self._is_unheard = True
            sync_set.note_lost()
            await asyncio.sleep(RETRY_S)
        else:
            sync_set.note_set(members, set_epoch)
            source.note_own()
            self._port.release_leavers()
            _log.warning("The set is %s, set epoch %d.", sorted(members), set_epoch)
