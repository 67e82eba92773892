"""Locking queues, for consumers that keep order."""

from __future__ import annotations

from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.queues.queue_locks import LockedQueue
from millstream.broker.remoting.members import MAX_CLIENT_ID_CHARACTERS
from millstream.model.errors import ConsumeRefused
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.queue_set import LockBody, LockedBody, QueueName
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_LOCKED_QUEUES", "LockHandlers"]

MAX_LOCKED_QUEUES: Final = 4096
"""Queues of one request to lock or unlock at most."""


class LockHandlers:
    """Codes 41 and 42."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def lock(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer which of the queues the client holds now. Queues of topics that are not here cannot be locked."""
        body = _read(command)
        self._broker.groups.ensure(body.consumer_group)
        known = [queue for queue in _queues(body) if self._broker.topics.find(queue.topic) is not None]
        locked = self._broker.groups.lock_queues(body.consumer_group, body.client_id, known)
        return command.response(
            body=encode_body(
                LockedBody([QueueName(queue.topic, queue.broker_name, queue.queue_id) for queue in locked])
            )
        )

    def note_leave(self, group: str, client_id: str, is_gone: bool) -> None:
        """A consumer has left. One that may live on trusts its locks until they expire."""
        if is_gone:
            self._broker.groups.release_queues(group, client_id)

    def unlock(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        body = _read(command)
        self._broker.groups.unlock_queues(body.consumer_group, body.client_id, _queues(body))
        return command.response()


def _read(command: RemotingCommand) -> LockBody:
    body = decode_body(LockBody, command.body)
    names = (body.client_id, *(queue.broker_name for queue in body.mq_set))
    if len(body.mq_set) > MAX_LOCKED_QUEUES or max(map(len, names)) > MAX_CLIENT_ID_CHARACTERS:
        raise ConsumeRefused(
            "TOO_MANY_REQUESTS",
            f"A request locks {MAX_LOCKED_QUEUES} queues at most, with names of {MAX_CLIENT_ID_CHARACTERS} characters.",
        )
    return body


def _queues(body: LockBody) -> list[LockedQueue]:
    return [LockedQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in body.mq_set]
