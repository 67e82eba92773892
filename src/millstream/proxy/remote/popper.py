"""Pops at remote brokers. Messages for a caller that left are made visible again."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from millstream.client.failover import has_lost_master, was_not_done
from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, MillstreamError, StoreError
from millstream.model.operations import ChangeInvisibleRequest, PoppedMessage, PopRequest, PullRequest
from millstream.model.topic import MessageType
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.popped import decode_popped
from millstream.protocol.remoting.messages.popping import (
    Notification,
    PopCall,
    decode_notification_answer,
    encode_change,
    encode_notification,
    encode_pop,
)
from millstream.proxy.remote.connection_pool import BrokerConnectionPool, check_success
from millstream.proxy.remote.routes import KnownRoute, RouteCache

__all__ = ["RETRY_S", "UNDER_WAY_S", "RemotePopper", "wait_until"]

_log = logging.getLogger(__name__)

NOTICE_S: Final = 5.0
"""Seconds for which brokers promise to notify when they have messages; one that came back is asked again after that."""

UNDER_WAY_S: Final = 1.0
"""Seconds after which a poll counts as under way whatever its broker answered: what is no master answers at once."""

RETRY_S: Final = 1.0
"""Seconds after which a poll at all brokers of a topic asks those again that failed."""

_LEAST_PAUSE_S: Final = 0.005


_Waiting = TypeVar("_Waiting", PopRequest, PullRequest)


@dataclass(slots=True)
class RemotePopper:
    """Answers the pops of one proxy."""

    lanes: BrokerConnectionPool
    routes: RouteCache
    clock: Clock
    _turn: int = 0
    _returns: set[asyncio.Task[None]] = field(default_factory=set)

    async def pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        """Messages of the broker; blank stands for any one of the topic's, in turn.

        A poll whose broker loses its master waits on at the new one. Where none comes in time, one that was under way
        ends empty, as one that found nothing, and one that reached no broker says why. What a master gave out whose
        answer was lost comes again after its invisible duration.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        deadline_s = began_s + request.wait_ms / 1000 if request.wait_ms > 0 else None
        was_under_way = False

        async def attempt(known: KnownRoute) -> list[PoppedMessage]:
            nonlocal was_under_way
            try:
                return await self._pop(broker_name, wait_until(request, deadline_s), known)
            except ConnectionFailed as error:
                is_closed = has_lost_master(error) and not was_not_done(error)
                was_under_way = was_under_way or is_closed or loop.time() - began_s >= UNDER_WAY_S
                raise

        try:
            return await self.routes.following(request.topic, attempt, deadline_s=deadline_s)
        except ConnectionFailed as error:
            if deadline_s is None or not was_under_way or not has_lost_master(error):
                raise
            _log.info("A poll of %s ends without its broker's master: %s", request.topic, error)
            return []

    async def _pop(self, broker_name: str, request: PopRequest, known: KnownRoute) -> list[PoppedMessage]:
        broker_name = known.holder(broker_name, request.queue_id)
        if not broker_name:
            self._turn += 1
            broker_name = list(known.addresses)[self._turn % len(known.addresses)]
        known.address(broker_name)
        is_lite = known.route.message_type is MessageType.LITE
        if request.anywhere and len(known.addresses) > 1 and not is_lite:
            return await self._pop_anywhere(known, broker_name, request)
        return await self._pop_at(known.address(broker_name), broker_name, request)

    async def _pop_anywhere(self, known: KnownRoute, first: str, request: PopRequest) -> list[PoppedMessage]:
        """Messages of the first broker that has some; all are waited for, without taking, where none has."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + request.wait_ms / 1000
        while True:
            names = [first, *(name for name in known.addresses if name != first)]
            failures: list[MillstreamError] = []
            for name in names:
                try:
                    popped = await self._pop_at(known.address(name), name, replace(request, wait_ms=0))
                except (ConnectionFailed, StoreError) as error:
                    failures.append(error)
                    continue
                if popped:
                    return popped
            if len(failures) == len(names):
                raise failures[0]
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return []
            await self._wait_anywhere(known, request, min(left_s, RETRY_S if failures else NOTICE_S))
            known = self.routes.find(request.topic) or known

    async def _wait_anywhere(self, known: KnownRoute, request: PopRequest, left_s: float) -> None:
        """Return when one of the brokers has something for the group, or the time is over."""
        began_s = asyncio.get_running_loop().time()
        wait_ms = max(int(left_s * 1000), 1)
        requests: list[asyncio.Future[RemotingCommand]] = []
        for name, address in known.addresses.items():
            question = Notification(request.group, request.topic, request.queue_id, wait_ms, self.clock.now_ms())
            command = RemotingCommand(RequestCode.NOTIFICATION, encode_notification(question, name))
            with suppress(MillstreamError):
                requests.append(await self.lanes.submit(address, command, wait_ms))
        waiting = set(requests)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if any(one.exception() is None and _has_messages(one.result()) for one in done):
                    break
        finally:
            for one in requests:
                one.cancel()
        # A broker whose news is of what this group does not want, or that is gone, must not be asked in a circle.
        if asyncio.get_running_loop().time() - began_s < _LEAST_PAUSE_S:
            await asyncio.sleep(_LEAST_PAUSE_S)

    async def _pop_at(self, address: str, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        call = PopCall(request, self.clock.now_ms(), from_last=False)
        command = RemotingCommand(RequestCode.POP_MESSAGE, encode_pop(call, broker_name))
        try:
            answering = await self.lanes.submit(address, command, request.wait_ms)
            answer = await self._answer(answering, address, broker_name, request)
            return _messages(answer, address, broker_name)
        except MillstreamError as error:
            self.routes.doubt(request.topic, error)
            raise

    async def close(self) -> None:
        """Let what is being given back arrive."""
        if self._returns:
            await asyncio.wait(self._returns, timeout=1.0)

    async def _answer(
        self, answering: asyncio.Future[RemotingCommand], address: str, broker_name: str, request: PopRequest
    ) -> RemotingCommand:
        try:
            return await asyncio.shield(answering)
        except asyncio.CancelledError:
            answering.add_done_callback(partial(self._nobody_waits, address, broker_name, request))
            raise

    def _nobody_waits(
        self, address: str, broker_name: str, request: PopRequest, answering: asyncio.Future[RemotingCommand]
    ) -> None:
        """The answer to a pop came after its caller went."""
        if answering.cancelled() or answering.exception() is not None:
            return
        try:
            popped = _messages(answering.result(), address, broker_name)
        except MillstreamError:
            return
        if popped:
            task = asyncio.get_running_loop().create_task(self._give_back(address, request, popped))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _give_back(self, address: str, request: PopRequest, popped: list[PoppedMessage]) -> None:
        for one in popped:
            change = ChangeInvisibleRequest(request.group, request.topic, one.handle, 0, suspend=True)
            command = RemotingCommand(RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME, encode_change(change))
            try:
                await self.lanes.demand(address, command)
            except MillstreamError as error:
                # Nothing is lost: the message becomes visible when its invisible time ends.
                _log.info("a delivery of %s to %s was not given back: %s", request.topic, request.group, error)


def wait_until(request: _Waiting, deadline_s: float | None) -> _Waiting:
    """The same request, which waits no longer than until then."""
    if deadline_s is None:
        return request
    left_ms = int((deadline_s - asyncio.get_running_loop().time()) * 1000)
    return replace(request, wait_ms=max(0, min(left_ms, request.wait_ms)))


def _has_messages(answer: RemotingCommand) -> bool:
    return answer.code == ResponseCode.SUCCESS and decode_notification_answer(answer.ext)[0]


def _messages(answer: RemotingCommand, address: str, broker_name: str) -> list[PoppedMessage]:
    if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
        return []
    check_success(answer, address)
    return decode_popped(answer.ext, answer.body, broker_name)
