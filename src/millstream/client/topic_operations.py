"""Client operations about topics: creation, queues, copies as columns, deletion, settings."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

from millstream.client.operations import ClientOperation, ClientOperations
from millstream.client.routes import mappings_of
from millstream.model.errors import ConnectionFailed, NameRefused
from millstream.model.topic import ColumnAttributes, TopicConfig, copy_attributes
from millstream.protocol.remoting.administration.settings import decode_topic_table, topic_fields
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["TopicOperations"]

_MASTER_ID: Final = 0


class TopicOperations:
    """The operations, over the brokers that `conversations` finds."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations

    def create(self, config: TopicConfig) -> ClientOperation[None]:
        """Create the topic on every master; TOPIC_EXISTS where it is there with other settings."""
        self._conversations.forget_route(config.name)
        ext = topic_fields(config)
        for address in (yield from self._conversations.masters()):
            yield from self._conversations.ask(address, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, dict(ext)))

    def add_queues(self, name: str, queues: int) -> ClientOperation[None]:
        """Give a topic so many queues on every master that has it; nothing else of it changes.

        Raises TOPIC_NOT_FOUND, FEWER_QUEUES, and ILLEGAL_STATIC_TOPIC for one whose queues are the cluster's.
        """
        self._conversations.forget_route(name)
        if mappings_of((yield from self._conversations.route(name))):
            words = f"The queues of the static topic {name!r} are the cluster's, not those of a broker."
            remedy = f"Run millstream topic create {name} --static --queues {queues}."
            raise NameRefused("ILLEGAL_STATIC_TOPIC", words, remedy=remedy)
        held = yield from self._by_master(name)
        most = max(topic.queues for topic in held.values())
        if queues < most:
            raise NameRefused("FEWER_QUEUES", f"The topic {name!r} has {most} queues and cannot have {queues}.")
        for address, topic in held.items():
            yield from self._change(address, replace(topic, read_queues=queues, write_queues=queues))
        self._conversations.forget_route(name)

    def declare_columns(self, name: str, copy: ColumnAttributes) -> ClientOperation[None]:
        """Have every master copy a topic's cold messages as these columns. Raises TOPIC_NOT_FOUND, ILLEGAL_TOPIC."""
        held = yield from self._by_master(name)
        for address, topic in held.items():
            attributes = {**topic.attributes, **copy_attributes(copy)}
            yield from self._change(address, replace(topic, attributes=attributes))

    def _by_master(self, name: str) -> ClientOperation[dict[str, TopicConfig]]:
        held: dict[str, TopicConfig] = {}
        for address in (yield from self._conversations.masters()):
            answer = yield from self._conversations.ask(address, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
            held.update((address, topic) for topic in decode_topic_table(answer.body) if topic.name == name)
        if not held:
            raise NameRefused("TOPIC_NOT_FOUND", f"The topic {name[:200]!r} does not exist.")
        return held

    def _change(self, address: str, topic: TopicConfig) -> ClientOperation[None]:
        ext = topic_fields(topic)
        del ext["createOnly"]
        yield from self._conversations.ask(address, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))

    def delete(self, name: str) -> ClientOperation[None]:
        """Delete the topic on every broker that holds it; TOPIC_NOT_FOUND."""
        self._conversations.forget_route(name)
        route = yield from self._conversations.route(name)
        self._conversations.forget_route(name)
        for broker in route.broker_datas:
            # Its replicas hear of it by the log.
            masters = [broker.broker_addrs[_MASTER_ID]] if _MASTER_ID in broker.broker_addrs else []
            for address in masters or broker.broker_addrs.values():
                command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
                yield from self._conversations.ask(address, command)
        for address in self._conversations.nameservers:
            # One that is down hears from the brokers what is left, once it is back.
            with contextlib.suppress(ConnectionFailed):
                yield from self._conversations.ask(
                    address, RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESERVER, {"topic": name})
                )

    def all(self) -> ClientOperation[list[TopicConfig]]:
        """All topics of all masters, by name."""
        found: dict[str, TopicConfig] = {}
        for address in (yield from self._conversations.masters()):
            answer = yield from self._conversations.ask(address, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
            for topic in decode_topic_table(answer.body):
                found.setdefault(topic.name, topic)
        return [found[name] for name in sorted(found)]

    def describe(self, name: str) -> ClientOperation[TopicConfig]:
        """One topic's settings; TOPIC_NOT_FOUND."""
        for topic in (yield from self.all()):
            if topic.name == name:
                return topic
        raise NameRefused("TOPIC_NOT_FOUND", f"The topic {name[:200]!r} does not exist.")
