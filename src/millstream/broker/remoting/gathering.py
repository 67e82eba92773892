"""Sends that arrive in one turn of the event loop go to the broker together, as far as they share a topic.

A task and a future for each group instead of each message is what this saves. Nobody notices otherwise: a group of
which one message is refused is taken apart, so that each message is judged alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from millstream.broker.broker import Broker
from millstream.model.errors import Refused
from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["MAX_GATHERED_MESSAGES", "Gathering"]

MAX_GATHERED_MESSAGES: Final = 1024
"""Messages of one group at most."""

Answering = Callable[[list[SendReceipt]], RemotingCommand]
"""Makes the answer of a send from the receipts of its messages."""


@dataclass(frozen=True, slots=True)
class _Sender:
    """Who waits for a part of a group."""

    answering: Answering
    future: asyncio.Future[RemotingCommand]

    def succeed(self, receipts: list[SendReceipt]) -> None:
        if not self.future.done():
            self.future.set_result(self.answering(receipts))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class _Group:
    """Messages for one call, and their senders: one for each message, or one for all."""

    topic: str
    typed: bool
    messages: list[OutgoingMessage] = field(default_factory=list)
    senders: list[_Sender] = field(default_factory=list)


class Gathering:
    """Gathers the sends of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._groups: list[_Group] = []
        self._open: dict[str, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: Counter[str] = Counter()

    def add(self, message: OutgoingMessage, answering: Answering, *, typed: bool) -> asyncio.Future[RemotingCommand]:
        """Store one message. Sends of one topic are stored in the order of the calls."""
        if message.queue_id is None:
            # The broker chooses one queue for all messages of a call, so those without a queue go alone.
            return self.add_batch([message], answering, typed=typed)
        group = self._open.get(message.topic)
        if group is None or group.typed is not typed or len(group.messages) >= MAX_GATHERED_MESSAGES:
            group = self._open[message.topic] = self._new_group(message.topic, typed=typed)
        sender = _Sender(answering, self._loop.create_future())
        group.messages.append(message)
        group.senders.append(sender)
        return sender.future

    def add_batch(
        self, messages: list[OutgoingMessage], answering: Answering, *, typed: bool
    ) -> asyncio.Future[RemotingCommand]:
        """Store messages of one topic, all or none."""
        for message in messages[:1]:
            self._open.pop(message.topic, None)
        sender = _Sender(answering, self._loop.create_future())
        group = self._new_group(messages[0].topic if messages else "", typed=typed)
        group.messages = messages
        group.senders.append(sender)
        return sender.future

    def is_free(self, topic: str) -> bool:
        """Whether no send of the topic is under way here, so that what is stored past this cannot overtake one."""
        return topic not in self._under_way

    def _new_group(self, topic: str, *, typed: bool) -> _Group:
        self._under_way[topic] += 1
        if not self._groups:
            self._loop.call_soon(self._send_gathered)
        group = _Group(topic, typed)
        self._groups.append(group)
        return group

    def _send_gathered(self) -> None:
        groups, self._groups = self._groups, []
        self._open.clear()
        for group in groups:
            task = self._loop.create_task(self._send(group))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, group.topic))

    def _ended(self, topic: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._under_way[topic] -= 1
        if not self._under_way[topic]:
            del self._under_way[topic]

    async def _send(self, group: _Group) -> None:
        messages, senders = group.messages, group.senders
        try:
            receipts = await self._broker.delivery.send(messages, typed=group.typed)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the senders' answer
            if isinstance(error, Refused) and len(senders) > 1:
                parts = zip(messages, senders, strict=True)
                await asyncio.gather(
                    *(self._send(_Group(group.topic, group.typed, [message], [sender])) for message, sender in parts)
                )
            else:
                for sender in senders:
                    sender.fail(error)
            return
        if len(senders) == 1:
            senders[0].succeed(receipts)
        else:
            for sender, receipt in zip(senders, receipts, strict=True):
                sender.succeed([receipt])
