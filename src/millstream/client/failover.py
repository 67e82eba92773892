"""Failover in the client: recognizes failures that mean a new master, and finds it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from millstream.client.requests import ClientOperation
from millstream.model.backoff import Backoff
from millstream.model.errors import MillstreamError, NotConnected, Unreachable
from millstream.protocol.remoting.bodies import TopicRouteData
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.refusals import error_of

__all__ = [
    "FAILOVER_BACKOFF",
    "check_master",
    "follow_master",
    "has_lost_master",
    "keep_masters",
    "was_not_done",
]

FAILOVER_BACKOFF: Final = Backoff(0.05, 0.5)
"""Between two tries of a request whose broker has no master that answers."""

_MASTER_ID: Final = 0
_NOT_MASTER: Final = "NOT_MASTER"

_T = TypeVar("_T")


def was_not_done(error: MillstreamError) -> bool:
    """Whether a request that failed so surely had no effect, so that it may be sent again whatever it asks."""
    return isinstance(error, NotConnected) or error.name == _NOT_MASTER


def has_lost_master(error: MillstreamError) -> bool:
    """Whether the broker may have another master now; a request that may be repeated is worth another try."""
    return isinstance(error, Unreachable) or error.name == _NOT_MASTER


def check_master(answer: RemotingCommand, address: str) -> RemotingCommand:
    """The answer, whatever its code; NOT_MASTER is raised."""
    if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
        error = error_of(answer, address)
        if error.name == _NOT_MASTER:
            raise error
    return answer


def keep_masters(told: TopicRouteData, known: TopicRouteData | None) -> TopicRouteData:
    """The route as told, where brokers whose replicas elect a master keep the former one's address.

    Otherwise the message groups of a broker would go to another one for the time of an election.
    """
    former = {} if known is None else {broker.broker_name: broker.broker_addrs for broker in known.broker_datas}
    for broker in told.broker_datas:
        master = former.get(broker.broker_name, {}).get(_MASTER_ID)
        if master is not None and broker.broker_addrs and _MASTER_ID not in broker.broker_addrs:
            broker.broker_addrs[_MASTER_ID] = master
    return told


def follow_master(
    attempt: Callable[[int], ClientOperation[_T]],
    note_failure: Callable[[MillstreamError], None],
    limit_s: float,
    may_repeat: Callable[[MillstreamError], bool] = has_lost_master,
) -> ClientOperation[_T]:
    """The result of an operation, which is tried again for `limit_s` after its first failure.

    `attempt` gets the number of the try, from 0 on. The first repetition follows at once.
    """
    number, delay_s, deadline_s = 0, 0.0, float("inf")
    while True:
        try:
            return (yield from _delay_first(attempt(number), delay_s))
        except MillstreamError as error:
            note_failure(error)
            now_s = time.monotonic()
            deadline_s = min(deadline_s, now_s + limit_s)
            if not may_repeat(error) or now_s >= deadline_s:
                raise
        delay_s = FAILOVER_BACKOFF.wait_s(number - 1) if number else 0.0
        number += 1


def _delay_first(operation: ClientOperation[_T], delay_s: float) -> ClientOperation[_T]:
    """The operation, whose first request waits so long."""
    try:
        step = next(operation)
        step = replace(step, delay_s=step.delay_s + delay_s)
        while True:
            try:
                answer = yield step
            except MillstreamError as error:
                step = operation.throw(error)
            else:
                step = operation.send(answer)
    except StopIteration as end:
        result: _T = end.value
        return result
