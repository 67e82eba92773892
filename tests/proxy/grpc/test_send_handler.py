"""SendMessage: what is stored, what is answered, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from memory_backend import MemoryBackend
from service_calls import Service, message

from millstream.model.message import MAX_BODY_BYTES, Address, SystemFlag
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.grpc import messages as m


async def test_a_message_is_stored_with_the_names_that_rocketmq_reserves(
    service: Service, backend: MemoryBackend
) -> None:
    sent = message(
        tag="new", keys=["k1", "k2"], trace_context="t", born_timestamp=m.Timestamp(seconds=5), user={"a": "b"}
    )
    answer = await service.call("SendMessage", m.SendMessageRequest(messages=[sent]))
    assert (answer.status.code, len(answer.entries)) == (m.OK, 1)
    (stored,) = backend.log
    assert stored.properties == {
        "UNIQ_KEY": "01ABC",
        "TAGS": "new",
        "KEYS": "k1 k2",
        "PGROUP": "orders",
        "__BORNHOST": "laptop",
        "BORN_TIMESTAMP": "5000",
        "TRACE_CONTEXT": "t",
        "a": "b",
    }
    assert (stored.born_timestamp_ms, stored.born_host) == (5000, Address("192.0.2.7", 50312))


async def test_each_entry_echoes_its_message_id_also_as_the_transaction_id(service: Service) -> None:
    request = m.SendMessageRequest(messages=[message(message_id="01A"), message(message_id="01B")])
    answer = await service.call("SendMessage", request)
    found = [(entry.status.code, entry.message_id, entry.transaction_id, entry.offset) for entry in answer.entries]
    assert found == [(m.OK, "01A", "01A", 0), (m.OK, "01B", "01B", 1)]


async def test_the_response_has_the_bytes_that_protobuf_would_write(service: Service) -> None:
    for number, ids in enumerate((["01A"], ["é" * 70, "x"])):
        request = m.SendMessageRequest(messages=[message(message_id=one) for one in ids])
        encoded = await service.adapter.unary("SendMessage", service.metadata, request, None)
        ok = m.Status(code=m.OK, message="OK")
        wanted = m.SendMessageResponse(
            status=ok,
            entries=[
                m.SendResultEntry(status=ok, message_id=one, transaction_id=one, offset=number + place)
                for place, one in enumerate(ids)
            ],
        )
        assert encoded == wanted.SerializeToString()


async def test_a_message_group_makes_a_fifo_message(service: Service, backend: MemoryBackend) -> None:
    assert (await service.send("ordered", message_group="customer-7")).status.code == m.OK
    assert backend.log[0].properties["__SHARDINGKEY"] == "customer-7"


async def test_a_gzipped_body_is_stored_as_it_came_and_marked(service: Service, backend: MemoryBackend) -> None:
    assert (await service.send(body=b"\x1f\x8b", body_encoding=m.GZIP)).status.code == m.OK
    assert (backend.log[0].body, backend.log[0].system_flag) == (b"\x1f\x8b", SystemFlag.COMPRESSED)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"body": b""}, m.MESSAGE_BODY_EMPTY),
        ({"body": bytes(MAX_BODY_BYTES + 1)}, m.MESSAGE_BODY_TOO_LARGE),
        ({"message_id": " "}, m.ILLEGAL_MESSAGE_ID),
        ({"tag": " "}, m.ILLEGAL_MESSAGE_TAG),
        ({"tag": "a|b"}, m.ILLEGAL_MESSAGE_TAG),
        ({"tag": "a\n"}, m.ILLEGAL_MESSAGE_TAG),
        ({"keys": [""]}, m.ILLEGAL_MESSAGE_KEY),
        ({"keys": ["a\x02"]}, m.ILLEGAL_MESSAGE_KEY),
        ({"topic": "ordered", "message_group": " "}, m.ILLEGAL_MESSAGE_GROUP),
        ({"topic": "ordered", "message_group": "x" * 65}, m.ILLEGAL_MESSAGE_GROUP),
        ({"user": {"KEYS": "x"}}, m.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"user": {"": "x"}}, m.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"user": {"a\n": "x"}}, m.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"user": {"a": "\x01"}}, m.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"user": {f"p{n}": "" for n in range(129)}}, m.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"user": {"a": "x" * 16384}}, m.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"keys": ["two words"]}, m.ILLEGAL_MESSAGE_KEY),
        ({"topic": "orders", "message_group": "g"}, m.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_type": m.TRANSACTION}, m.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (
            {
                "topic": "anything",
                "message_type": m.TRANSACTION,
                "orphaned_transaction_recovery_duration": m.Duration(seconds=3601),
            },
            m.BAD_REQUEST,
        ),
        (
            {"topic": "anything", "message_type": m.TRANSACTION, "delivery_timestamp": m.Timestamp(seconds=9)},
            m.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        ),
        ({"delivery_timestamp": m.Timestamp(seconds=9)}, m.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"body_encoding": 9}, m.MESSAGE_CORRUPTED),
        ({"topic": "no such topic"}, m.ILLEGAL_TOPIC),
        ({"topic": "rmq_sys_x"}, m.ILLEGAL_TOPIC),
        ({"topic": "TBW102"}, m.ILLEGAL_TOPIC),
        ({"topic": "missing"}, m.TOPIC_NOT_FOUND),
    ],
)
async def test_what_is_not_accepted_is_told_by_its_code_and_nothing_is_stored(
    service: Service, backend: MemoryBackend, sent: dict[str, Any], code: int
) -> None:
    answer = await service.send(**sent)
    assert m.Code.Name(answer.status.code) == m.Code.Name(code)
    assert "[MS-" in answer.status.message
    assert backend.log == []


@pytest.mark.parametrize("messages", [[], [message("orders"), message("anything")]], ids=["none", "two topics"])
async def test_a_request_holds_messages_of_exactly_one_topic(
    service: Service, backend: MemoryBackend, messages: list[Any]
) -> None:
    answer = await service.call("SendMessage", m.SendMessageRequest(messages=messages))
    assert answer.status.code == m.MESSAGE_CORRUPTED
    assert backend.log == []


async def test_one_bad_message_keeps_its_whole_request_out_of_the_log(service: Service, backend: MemoryBackend) -> None:
    request = m.SendMessageRequest(messages=[message(), message(tag="|")])
    assert (await service.call("SendMessage", request)).status.code == m.ILLEGAL_MESSAGE_TAG
    assert backend.log == []


async def test_largest_body_message_group_and_number_of_properties_are_accepted(service: Service) -> None:
    user = {f"p{number}": "v" for number in range(128)}
    answer = await service.send("anything", bytes(MAX_BODY_BYTES), message_group="x" * 63, user=user)
    assert answer.status.code == m.OK


async def test_a_priority_and_its_type_come_back_to_the_consumer(service: Service, backend: MemoryBackend) -> None:
    backend.topics["urgent"] = TopicConfig("urgent", MessageType.PRIORITY)
    assert (await service.send("urgent", message_type=m.PRIORITY, priority=5)).status.code == m.OK
    frames = await service.receive("urgent")
    system = frames[1].message.system_properties
    assert (system.priority, system.message_type) == (5, m.PRIORITY)
    await service.send("orders")
    assert not (await service.receive("orders"))[1].message.system_properties.HasField("priority")


async def test_a_negative_priority_is_refused(service: Service, backend: MemoryBackend) -> None:
    backend.topics["urgent"] = TopicConfig("urgent", MessageType.PRIORITY)
    answer = await service.send("urgent", message_type=m.PRIORITY, priority=-1)
    assert answer.status.code == m.BAD_REQUEST
