"""Operations of the client that are played without any socket: each question is answered by the next step."""

from __future__ import annotations

from typing import TypeVar

from millstream.client.operations import ClientOperation, RequestStep
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["Step", "play", "route"]

T = TypeVar("T")
Step = RemotingCommand | MillstreamError


def route(*addresses: str, ids: tuple[int, ...] = (0,)) -> RemotingCommand:
    """Brokers b, c and so on, with these addresses."""
    names = [chr(ord("b") + number) for number in range(len(addresses))]
    brokers = [BrokerData(name, dict.fromkeys(ids, address)) for name, address in zip(names, addresses, strict=True)]
    return RemotingCommand(0, body=encode_body(TopicRouteData(brokers, [QueueData(name, 4, 4) for name in names])))


def play(conversation: ClientOperation[T], steps: list[Step]) -> tuple[T | MillstreamError, list[RequestStep]]:
    """The result, and what was asked, where each ask is answered by the next step."""
    asked: list[RequestStep] = []
    try:
        ask = next(conversation)
        for step in steps:
            asked.append(ask)
            ask = conversation.throw(step) if isinstance(step, MillstreamError) else conversation.send(step)
    except StopIteration as end:
        return end.value, asked
    except MillstreamError as error:
        return error, asked
    raise AssertionError(f"it asks on: {ask}")
