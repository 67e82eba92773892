"""`millstream dlq`, as scripts use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from commands import Ran

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


Command = Callable[..., Ran]


@pytest.fixture
def give_up(server: ServerProcess, millstream: Command) -> Callable[..., list[str]]:
    """Sends messages and forwards each to the dead-letter topic of a group; their ids."""

    def call(channel: Any, name: str, request: Any) -> Any:
        return METHODS[name].stub(channel)(request, metadata=(("x-mq-client-id", "tester"),), timeout=20)

    def carry_out(topic: str, group: str, *bodies: str) -> list[str]:
        millstream("topic", "create", topic, "--queues", "1")
        for body in bodies:
            millstream("produce", topic, body)
        ids = []
        with grpc.insecure_channel(server.addresses.grpc) as channel:
            wish = m.ReceiveMessageRequest(
                group=m.Resource(name=group),
                message_queue=m.MessageQueue(topic=m.Resource(name=topic), id=-1),
                batch_size=32,
                invisible_duration=m.Duration(seconds=30),
            )
            while len(ids) < len(bodies):
                for frame in call(channel, "ReceiveMessage", wish):
                    if frame.HasField("message"):
                        system = frame.message.system_properties
                        ids.append(system.message_id)
                        forward = m.ForwardMessageToDeadLetterQueueRequest(
                            group=m.Resource(name=group),
                            topic=m.Resource(name=topic),
                            receipt_handle=system.receipt_handle,
                            message_id=system.message_id,
                        )
                        assert call(channel, "ForwardMessageToDeadLetterQueue", forward).status.code == m.OK
        return ids

    return carry_out


def test_dead_letters_are_listed_with_their_origin_and_sent_again_once(
    millstream: Command, give_up: Callable[..., list[str]]
) -> None:
    first, second = give_up("failing", "failed", "a", "bc")
    rows = millstream("dlq", "list", "failed", "-o", "json").json()
    assert [(row["offset"], row["message_id"], row["origin_topic"], row["bytes"]) for row in rows] == [
        (0, first, "failing", 1),
        (1, second, "failing", 2),
    ]
    assert (rows[0]["attempts"], rows[0]["reason"], rows[0]["redriven"]) == (1, "given up by the consumer", False)
    assert rows[0]["died"].endswith("Z")

    one = millstream("dlq", "redrive", "failed", "--id", second, "-o", "json")
    assert (one.code, one.json()) == (0, {"group": "failed", "sent": 1, "refused": 0, "topics": ["failing"]})
    assert [row["message_id"] for row in millstream("dlq", "list", "failed", "-o", "json").json()] == [first]
    assert len(millstream("dlq", "list", "failed", "--all", "-o", "json").json()) == 2
    assert millstream("dlq", "redrive", "failed", "-o", "json").json()["sent"] == 1
    assert millstream("dlq", "redrive", "failed", "-o", "json").json()["sent"] == 0
    assert millstream("consume", "failing", "--until-end").out == "a\nbc\nbc\na\n"
    empty = millstream("dlq", "list", "failed")
    assert (empty.code, empty.out) == (0, "")
    assert "no dead letters that wait" in empty.err


def test_what_the_target_refuses_is_named_and_stays(millstream: Command, give_up: Callable[..., list[str]]) -> None:
    give_up("vanishing", "vanished", "a")
    millstream("topic", "delete", "vanishing", "--yes")
    refused = millstream("dlq", "redrive", "vanished", "-o", "json")
    assert (refused.code, refused.json()["sent"], refused.json()["refused"]) == (1, 0, 1)
    assert "MS-2101" in refused.err
    assert "1 were refused and stay dead letters" in refused.err
    millstream("topic", "create", "rescue", "--queues", "1")
    give_up("staying", "vanished", "b")
    partly = millstream("dlq", "redrive", "vanished", "-o", "json")
    assert (partly.code, partly.json()["sent"]) == (5, 1)
    assert millstream("dlq", "redrive", "vanished", "--to", "rescue", "-o", "json").json()["topics"] == ["rescue"]
    assert millstream("consume", "rescue", "--until-end").out == "a\n"


def test_many_are_sent_in_steps_and_no_more_than_asked(millstream: Command, give_up: Callable[..., list[str]]) -> None:
    give_up("many", "swamped", *"abcdef")
    assert millstream("dlq", "redrive", "swamped", "--count", "4", "--rate", "20", "-o", "json").json()["sent"] == 4
    assert [row["offset"] for row in millstream("dlq", "list", "swamped", "-o", "json").json()] == [4, 5]


def test_only_those_of_a_time_are_listed(millstream: Command, give_up: Callable[..., list[str]]) -> None:
    give_up("dated", "dater", "a")
    assert len(millstream("dlq", "list", "dater", "--since", "1h", "-o", "json").json()) == 1
    assert millstream("dlq", "list", "dater", "--until", "1h", "-o", "json").json() == []
    assert millstream("dlq", "list", "dater", "--since", "soon").code == 2


def test_a_group_that_never_was_is_refused(millstream: Command) -> None:
    for command in ("list", "redrive"):
        refused = millstream("dlq", command, "nobody-ever")
        assert (refused.code, "MS-2201" in refused.err) == (1, True)
