"""How long a replica with many topics and unread messages takes to become the master: real processes, kill -9."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.broker_set import BrokerSet, cpu_s, spread
from millstream.client.blocking import BlockingClient, BlockingConnection
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.protocol.remoting.bodies import TopicConfigData, TopicConfigList, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["measure_promotion"]

_LED: Final = re.compile(r"is the master of \S+, epoch \d+, ([\d.]+) s after")
_DELAY_MS: Final = 3_600_000
_TOPICS_AT_ONCE: Final = 200
_BATCH: Final = 500
_BODY: Final = b"x" * 256


def measure_promotion(
    directory: Path,
    running: ExitStack,
    *,
    topics: int = 9_900,
    messages: int = 1_000_000,
    delayed: int = 20_000,
    promotions: int = 6,
) -> dict[str, object]:
    """From the controller's word to a master that its nameservers know, as that one says it, and from the kill of the
    one before to the first send that is answered. Some of the messages are `delayed`, by an hour."""
    one = BrokerSet(directory, running)
    for name in "abc":
        one.add(name)
    one.await_members(3)
    names = [f"topic-{number:05d}" for number in range(topics)]
    _create_topics(one.brokers[one.master()].addresses["broker"], names)
    first_send_s, word_s, promoted_cpu_s = [], [], []
    with BlockingClient(one.nameserver) as client:
        _fill(client, names, messages, delayed)
        time.sleep(1)
        for _ in range(promotions):
            master = one.master()
            port = one.brokers[master].addresses["broker"].rpartition(":")[2]
            before_s = {name: cpu_s(process) for name, process in one.brokers.items()}
            one.brokers[master].kill()
            began_s = time.monotonic()
            _send(client, names[0])
            first_send_s.append(time.monotonic() - began_s)
            led = one.master()
            promoted_cpu_s.append(cpu_s(one.brokers[led]) - before_s[led])
            word_s.append(float(_LED.findall(one.log_of(led))[-1]))
            one.add(master, port)
            one.await_members(3)
    return {
        "topics": topics,
        "messages": messages,
        "delayed": delayed,
        "after_the_word_s": spread(word_s),
        "first_send_s": spread(first_send_s),
        "cpu_s_of_the_promoted": spread(promoted_cpu_s),
    }


def _create_topics(address: str, names: Sequence[str]) -> None:
    line = BlockingConnection(address, timeout_s=30)
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        some = [TopicConfigData(name, 1, 1) for name in names[start : start + _TOPICS_AT_ONCE]]
        command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, encode_body(TopicConfigList(some)))
        answer = line.request(command, 30)
        assert answer.code == ResponseCode.SUCCESS, answer
    line.close()


def _fill(client: BlockingClient, names: Sequence[str], messages: int, delayed: int) -> None:
    due_ms = round(time.time() * 1000) + _DELAY_MS
    each = max((messages - delayed) // len(names), 1)
    for name in names:
        client.send_many([Message(name, _BODY)] * each)
    for number in range(delayed):
        client.send(Message(names[number % len(names)], _BODY, delivery_timestamp_ms=due_ms + number))


def _send(client: BlockingClient, topic: str) -> None:
    while True:
        try:
            client.send(Message(topic, _BODY))
        except MillstreamError:
            continue
        return
