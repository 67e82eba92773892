"""Pops at brokers beyond a connection. What comes for a caller that went away is given back."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial

from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.operations import ChangeInvisibleRequest, PoppedMessage, PopRequest
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.popped import decode_popped
from millstream.protocol.remoting.popping import PopCall, encode_change, encode_pop
from millstream.proxy.remote.lanes import Lanes, checked
from millstream.proxy.remote.routes import Routes

__all__ = ["Popper"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Popper:
    """Answers the pops of one proxy."""

    lanes: Lanes
    routes: Routes
    clock: Clock
    _turn: int = 0
    _returns: set[asyncio.Task[None]] = field(default_factory=set)

    async def pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        """Messages of the broker; blank stands for any one of the topic's, in turn."""
        known = await self.routes.get(request.topic)
        if not broker_name:
            self._turn += 1
            broker_name = list(known.addresses)[self._turn % len(known.addresses)]
        address = known.address(broker_name)
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


def _messages(answer: RemotingCommand, address: str, broker_name: str) -> list[PoppedMessage]:
    if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
        return []
    checked(answer, address)
    return decode_popped(answer.ext, answer.body, broker_name)
