"""Repairs the log of one replica: finds damage and fetches the correct bytes from another replica.

Damage is found at a start, where a reader or the master's replica meets it, and by looking through the whole log
slowly, again and again. Every member of the set has what is confirmed, so any of them is asked for it, by code 9124; it
looks at the checksums of what it gives. What none has stays damaged, is reported, and is asked for again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import ssl
from collections.abc import Callable
from typing import Final

from millstream.controller.broker_calls import address_of
from millstream.model.backoff import Backoff
from millstream.model.errors import MillstreamError, StoreError
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.replication import NO_EPOCH, RangeAnswer, RangeRequest
from millstream.protocol.remoting.refusals import error_of
from millstream.replication.source import MAX_FETCH_BYTES
from millstream.security.signature import Credentials
from millstream.server.replicas.membership import Membership
from millstream.server.replicas.replica_store import ReplicaStore
from millstream.store.damage.log_mending import LogLook, SoundRange
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["PASS_PAUSE_S", "LogMender"]

_log = logging.getLogger(__name__)

PASS_PAUSE_S: Final = 86_400.0
"""Seconds after the whole log was looked at, before that begins again; it begins at each start as well."""

MAX_CLEARED: Final = 10_000
"""Places that are not damaged although readers met something there; beyond that they are looked at again."""

SAY_AGAIN_S: Final = 600.0
"""Seconds after the log said that bytes are damaged, before it says so of others: a disk that fails damages many."""

HOLD_S: Final = 30.0
"""Seconds that readers wait for a damaged record while a replica that may have it does not answer; then they pass it
over."""

_RETRY: Final = Backoff(0.2, 30.0)
_MAX_ATTEMPT: Final = 10
_LACKS: Final = frozenset({"RECORD_DAMAGED", "REPLICA_REFUSED"})
"""What a replica answers, or what its answer is, where it does not have what is asked for."""

_OPEN_S: Final = 1.0
_ANSWER_S: Final = 3.0


class LogMender:
    """`changing` is held while the log is written that a change of role would cut. `bytes_per_s` is how fast the log
    is looked through; 0 looks only where damage is suspected. `on_whole` is called where derived files can be made
    again, because all that was damaged is mended."""

    def __init__(
        self,
        own: ReplicaStore,
        membership: Membership,
        changing: asyncio.Lock,
        bytes_per_s: int,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        on_whole: Callable[[], None],
    ) -> None:
        self._own = own
        self._membership = membership
        self._changing = changing
        self._bytes_per_s = bytes_per_s
        self._credentials = credentials
        self._tls = tls
        self._on_whole = on_whole
        self._suspects: set[tuple[int, int]] = set()
        """From which log offset to which damage is suspected."""
        self._hopeless: set[int] = set()
        """Where places begin that no replica has; who reads there passes over them."""
        self._cleared: set[int] = set()
        """Where readers met damage that is none of the log's: what led them there is wrong."""
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pass = _Pass()
        self._next_look_s = 0.0
        self._next_try_s = 0.0
        self._attempts = 0
        self._failing_since_s = 0.0
        self._has_failed = False
        self._said_s = self._answered_s = -math.inf
        """When the log said last that there is damage, and to which of these times it said that there is no more."""
        self.mended_bytes = 0
        """Bytes that were damaged and are right again, since this process began."""

    @property
    def damaged_bytes(self) -> int:
        """Bytes of the log that are known to be damaged."""
        return self._own.damage.size_bytes if self._own.is_open else 0

    @property
    def is_damaged(self) -> bool:
        """Whether the log, or what is derived from it, lacks what it should have."""
        return self._own.is_open and bool(self._own.damage.places or self._own.damage.needs_rebuild)

    def suspect(self, log_offset: int) -> bool:
        """Have the log looked at where something damaged was met; whether it may be right soon. Fit for any thread."""
        places = self._own.damage.places
        if log_offset >= self._own.store.confirmed_log_offset:
            return False
        hopeless = self._hopeless
        if log_offset in self._cleared or any(first <= log_offset < end for first, end in places if first in hopeless):
            return False
        self._suspects.add((log_offset, log_offset + 1))
        if self._loop is None:
            # Nobody can wait for it while the store is opened: who reads passes it over, and starts over later.
            self._own.damage.needs_rebuild = True
            return False
        self._loop.call_soon_threadsafe(self._news.set)
        return True

    def doubt(self, log_offset: int) -> None:
        """Have the log looked at from there on, because a replica got something damaged from there."""
        self._suspects.add((log_offset, log_offset + MAX_FETCH_BYTES))
        self._news.set()

    async def run(self) -> None:
        """Look and mend for as long as the task lives."""
        loop = self._loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            try:
                await self._do_next(loop.time())
                self._has_failed = False
            except (MillstreamError, OSError) as error:
                if not self._has_failed:
                    _log.warning("The log is not looked at for now: %s", error)
                self._has_failed = True
                self._next_look_s = loop.time() + _RETRY.wait_s(_MAX_ATTEMPT)
            if not self._suspects:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._idle_s(loop.time())):
                        await self._news.wait()

    async def _do_next(self, now_s: float) -> None:
        if not self._own.is_open:
            self._next_look_s = now_s + _RETRY.wait_s(_MAX_ATTEMPT)
            return
        damage = self._own.damage
        if self._suspects:
            await self._look_for(*self._suspects.pop())
        if damage.places and now_s >= self._next_try_s:
            await self._mend_all(now_s)
        elif self._may_look and now_s >= self._next_look_s:
            await self._look_on(now_s)
        if damage.needs_rebuild and not damage.places:
            self._on_whole()

    @property
    def _may_look(self) -> bool:
        return self._bytes_per_s > 0 and not self._own.damage.is_full

    def _idle_s(self, now_s: float) -> float:
        due_s = [self._next_look_s] if self._may_look or not self._own.is_open else []
        if self._own.is_open and self._own.damage.places:
            due_s.append(self._next_try_s)
        return max(min(due_s, default=now_s + PASS_PAUSE_S) - now_s, 0.0)

    # looking

    async def _look_on(self, now_s: float) -> None:
        """One look of the pass through the whole log."""
        store, passing = self._own.store, self._pass
        start, end = self._own.log.start, store.confirmed_log_offset
        passing.begin(store, self._own.damage.position, start, end)
        if passing.is_done(start, end):
            self._own.damage.position = start
            await asyncio.to_thread(self._own.damage.save)
            self._pass = _Pass()
            self._cleared = set()
            self._next_look_s = now_s + PASS_PAUSE_S
            return
        look = await self._look(passing.position)
        if look is None:
            return
        passing.position = look.end
        first = store.mending.start_of_file(look.start)
        if first != self._own.damage.position:
            self._own.damage.position = first
            await asyncio.to_thread(self._own.damage.save)
        self._next_look_s = now_s + (look.end - look.start) / self._bytes_per_s

    async def _look_for(self, suspect: int, end: int) -> None:
        """Look from where the suspect's file begins: what led there may itself be damaged."""
        if self._own.damage.holds(suspect):
            return
        store = self._own.store
        position = store.mending.start_of_file(suspect)
        while position < min(end, store.confirmed_log_offset):
            look = await self._look(position)
            if look is None or self._own.store is not store:
                return
            position = look.end
        if not self._own.damage.holds(suspect):
            self._cleared = {*self._cleared, suspect} if len(self._cleared) < MAX_CLEARED else {suspect}

    async def _look(self, position: int) -> LogLook | None:
        """What is there, noted where it is damaged; None where the log changed meanwhile."""
        store = self._own.store
        # Without the lock: a disk that takes long to give up on a sector must not hold up a change of role.
        look = await asyncio.to_thread(store.mending.look, position, store.confirmed_log_offset)
        if self._own.store is not store or not self._own.is_open or position < self._own.log.start:
            return None
        if look.is_damaged:
            await self._note(look.start, look.end)
        return look

    async def _note(self, start: int, end: int) -> None:
        damage = self._own.damage
        now_s = asyncio.get_running_loop().time()
        if damage.note(start, end):
            await asyncio.to_thread(damage.save)
            self._next_try_s = 0.0
            if now_s - self._said_s >= SAY_AGAIN_S:
                self._said_s = now_s
                words = f"The log is damaged at {start} to {end}; this replica fetches it from another one."
                _log.error("%s", StoreError("LOG_DAMAGED", words))

    # mending

    async def _mend_all(self, now_s: float) -> None:
        damage, lacking = self._own.damage, ""
        peers: list[str] = []
        try:
            peers = await self._membership.find_replicas()
        except MillstreamError as error:
            lacking = str(error)
        for start, end in [*damage.places] if peers or not lacking else []:
            lacking = await self._mend(start, end, peers, may_pass_over=self._is_long(now_s)) or lacking
        await asyncio.to_thread(damage.save)
        if not damage.places:
            self._attempts = 0
            self._hopeless.clear()
            if self._said_s != self._answered_s:
                self._answered_s = self._said_s
                _log.warning("The log is whole again: other replicas had what was damaged.")
            return
        if not self._attempts:
            self._failing_since_s = now_s
        if lacking and not self._attempts:
            words = f"{len(damage.places)} places of the log stay damaged for now: {lacking}"
            _log.error("%s", StoreError("LOG_DAMAGED", words))
        self._next_try_s = now_s + _RETRY.wait_s(min(self._attempts, _MAX_ATTEMPT))
        self._attempts += 1

    def _is_long(self, now_s: float) -> bool:
        return self._attempts > 0 and now_s - self._failing_since_s >= HOLD_S

    async def _mend(self, start: int, end: int, peers: list[str], *, may_pass_over: bool) -> str:
        """Mend what is confirmed of one place; why it stays as it is, or nothing."""
        end = min(end, self._own.store.confirmed_log_offset)
        words, is_hopeless, was_hopeless = "there is no other replica", True, start in self._hopeless
        for peer in peers:
            try:
                while start < end:
                    start = await self._mend_part(peer, start, end)
            except (MillstreamError, ValueError, OSError) as error:
                words = f"{peer}: {error}"
                # Who answered does not have it; who did not may have it.
                is_hopeless &= isinstance(error, MillstreamError) and error.name in _LACKS
            else:
                break
        self._hopeless.discard(start)
        if start >= end:
            # Who read there meanwhile passed it over.
            self._own.damage.needs_rebuild |= was_hopeless
            return ""
        if is_hopeless or may_pass_over:
            self._hopeless.add(start)
        return words

    async def _mend_part(self, peer: str, start: int, end: int) -> int:
        """Write what a replica has from `start` on; up to where. Raises what that one refuses, ValueError, OSError."""
        own = self._own
        store, epoch = own.store, own.log.epochs.at(end - 1)
        request = RangeRequest(
            self._membership.cluster, self._membership.name, *(epoch or (NO_EPOCH, NO_EPOCH)), start, end
        )
        sound = await _fetch(peer, request, self._credentials, self._tls)
        async with self._changing:
            if own.store is not store or not own.is_open or own.log.epochs.at(end - 1) != epoch:
                raise ValueError("the log is another one meanwhile")
            if sound.end > store.confirmed_log_offset:
                raise ValueError(f"the answer goes to {sound.end}, beyond what is confirmed")
            await asyncio.to_thread(store.mending.mend, sound)
            own.damage.drop(start, sound.end)
        self.mended_bytes += min(sound.end, end) - start
        return sound.end


class _Pass:
    """One look through the whole log: from where the last one stopped to the end, then from the beginning to there."""

    def __init__(self) -> None:
        self.position = 0
        self._first = 0
        self._is_round = False
        self._store: object = None

    def begin(self, store: object, noted: int, log_start: int, end: int) -> None:
        """Begin, unless it has; in another store, as after a cut, it starts over."""
        if self._store is not store:
            self._store, self._is_round = store, False
            self.position = self._first = noted if log_start <= noted < end else log_start
        self.position = max(self.position, log_start)

    def is_done(self, log_start: int, end: int) -> bool:
        """Whether all was seen of the log that is between these two."""
        if not self._is_round and self.position >= end:
            self._is_round, self.position = True, log_start
        return self._is_round and self.position >= min(self._first, end)


async def _fetch(
    peer: str, asked: RangeRequest, credentials: Credentials | None, tls: ssl.SSLContext | None
) -> SoundRange:
    """What the replica at the address has. Raises what it refuses, Unreachable, TimedOut, ValueError."""
    connection = await RemotingConnection.open(address_of(peer), timeout_s=_OPEN_S, credentials=credentials, tls=tls)
    try:
        answer = await connection.request(RemotingCommand(RequestCode.FETCH_RANGE, asked.encode()), _ANSWER_S)
    finally:
        await connection.close()
    if answer.code != ResponseCode.SUCCESS:
        raise error_of(answer, peer)
    found_range = RangeAnswer.decode(answer.ext)
    if found_range.end <= asked.start:
        raise ValueError(f"the answer ends at {found_range.end}, where it was to begin at {asked.start}")
    return SoundRange(asked.start, found_range.end, bytes(answer.body))
