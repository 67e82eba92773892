"""What may be stored, as a table: each refusal has its error and names the value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.broker.delivery.admission import (
    MAX_SEND_MESSAGES,
    check_keys,
    check_message,
    check_messages,
    check_user_properties,
    type_of,
)
from millstream.model.errors import MessageRefused, NameRefused, Refused
from millstream.model.message import MAX_BODY_BYTES, Address, OutgoingMessage, SystemFlag
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.record import encode_record

TOPIC = TopicConfig("orders")
MIXED = TopicConfig("orders", MessageType.MIXED)
GOOD = OutgoingMessage("orders", b"x", {"UNIQ_KEY": "id", "TAGS": "a", "KEYS": "k1 k2", "colour": "red"})


def with_properties(**held: str) -> OutgoingMessage:
    return replace(GOOD, properties=held)


ACCEPTED = {
    "an ordinary message": GOOD,
    "no properties at all": with_properties(),
    "the largest body": replace(GOOD, body=bytes(MAX_BODY_BYTES)),
    "128 user properties": replace(GOOD, properties={f"p{n}": "" for n in range(128)}),
    "16 KiB of user properties": with_properties(p="x" * (16 * 1024 - 1)),
    "text of any language": with_properties(TAGS="été", colour="红色", KEYS="ключ"),
    "no delay": with_properties(DELAY="0"),
    "an IPv6 born host": replace(GOOD, born_host=Address("::1", 1)),
    "the last queue": replace(GOOD, queue_id=3),
}

REFUSED = {
    "another topic": (replace(GOOD, topic="other"), "MESSAGE_MALFORMED", "'other'"),
    "an empty body": (replace(GOOD, body=b""), "BODY_EMPTY", "'orders'"),
    "a body over the limit": (replace(GOOD, body=bytes(MAX_BODY_BYTES + 1)), "BODY_TOO_LARGE", "4194305"),
    "reserved properties over what a record holds": (
        with_properties(TRACE_CONTEXT="x" * 32767), "PROPERTIES_TOO_LARGE", "32782"),
    "a blank tag": (with_properties(TAGS=" "), "ILLEGAL_TAG", "' '"),
    "a tag with |": (with_properties(TAGS="a|b"), "ILLEGAL_TAG", "'a|b'"),
    "a tag with a control character": (with_properties(TAGS="a\x7f"), "ILLEGAL_TAG", "x7f"),
    "blank keys": (with_properties(KEYS=""), "ILLEGAL_KEY", "''"),
    "a key with a control character": (with_properties(KEYS="a\tb"), "ILLEGAL_KEY", "a.tb"),
    "a control character in a name": (with_properties(**{"col\nour": "red"}), "ILLEGAL_PROPERTY", "col"),
    "a control character in a value": (with_properties(size="1", colour="r\x85"), "ILLEGAL_PROPERTY", "'colour'"),
    "a blank name": (with_properties(**{" ": "red"}), "ILLEGAL_PROPERTY", "blank name"),
    "an empty name": (with_properties(**{"": "red"}), "ILLEGAL_PROPERTY", "blank name"),
    "a blank name beside other languages": (with_properties(**{" ": "é"}), "ILLEGAL_PROPERTY", "' '"),
    "a separator in a reserved property": (with_properties(UNIQ_KEY="a\x02b"), "ILLEGAL_PROPERTY", "x02"),
    "half of a surrogate pair": (with_properties(colour="\ud800"), "ILLEGAL_PROPERTY", "Unicode"),
    "a queue beyond the last": (replace(GOOD, queue_id=4), "QUEUE_NOT_FOUND", "4"),
    "a negative queue": (replace(GOOD, queue_id=-1), "QUEUE_NOT_FOUND", "-1"),
    "a born host that is a name": (replace(GOOD, born_host=Address("pc", 1)), "MESSAGE_MALFORMED", "'pc'"),
    "a flag beyond 32 bits": (replace(GOOD, flag=1 << 31), "MESSAGE_MALFORMED", "2147483648"),
    "a born time beyond 64 bits": (
        replace(GOOD, born_timestamp_ms=1 << 63), "MESSAGE_MALFORMED", "9223372036854775808"),
    "negative reconsume times": (replace(GOOD, reconsume_times=-1), "MESSAGE_MALFORMED", "-1"),
}  # fmt: skip


@pytest.mark.parametrize("message", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted_and_then_storable(message: OutgoingMessage) -> None:
    check_message(message, TOPIC)
    encode_record(
        message, queue_id=0, queue_offset=0, log_offset=0, store_timestamp_ms=0, store_host=Address("127.0.0.1", 1)
    )


@pytest.mark.parametrize(("message", "error", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_the_value(message: OutgoingMessage, error: str, named: str) -> None:
    with pytest.raises(Refused, match=named) as refused:
        check_message(message, TOPIC)
    assert refused.value.name == error


FIFO = {"__SHARDINGKEY": "customer-7"}
TYPES = [
    ({}, SystemFlag.NONE, MessageType.NORMAL),
    (FIFO, SystemFlag.NONE, MessageType.FIFO),
    ({**FIFO, "TIMER_DELAY_SEC": "5"}, SystemFlag.NONE, MessageType.DELAY),
    ({"TIMER_DELIVER_MS": "5"}, SystemFlag.NONE, MessageType.DELAY),
    ({"TIMER_DELAY_MS": "5"}, SystemFlag.NONE, MessageType.DELAY),
    ({"DELAY": "3"}, SystemFlag.NONE, MessageType.DELAY),
    ({"DELAY": "0"}, SystemFlag.NONE, MessageType.NORMAL),
    ({"__LITE_TOPIC": "ann"}, SystemFlag.NONE, MessageType.LITE),
    ({"_SYS_MSG_PRIORITY_": "7"}, SystemFlag.NONE, MessageType.PRIORITY),
    ({"_SYS_MSG_PRIORITY_": "7", "__SHARDINGKEY": "ann"}, SystemFlag.NONE, MessageType.FIFO),
    ({"DELAY": "3", "TRAN_MSG": "true"}, SystemFlag.NONE, MessageType.TRANSACTION),
    ({}, SystemFlag.TRANSACTION_PREPARED, MessageType.TRANSACTION),
    ({}, SystemFlag.COMPRESSED, MessageType.NORMAL),
]


@pytest.mark.parametrize(("held", "flag", "kind"), TYPES)
def test_the_type_is_what_the_properties_say(held: dict[str, str], flag: SystemFlag, kind: MessageType) -> None:
    assert type_of(OutgoingMessage("orders", b"x", held, system_flag=flag)) is kind


@pytest.mark.parametrize("topic_type", list(MessageType))
@pytest.mark.parametrize(("held", "flag", "kind"), TYPES)
def test_a_topic_takes_its_type_only(
    topic_type: MessageType, held: dict[str, str], flag: SystemFlag, kind: MessageType
) -> None:
    message = OutgoingMessage("orders", b"x", {"UNIQ_KEY": "id", **held}, system_flag=flag)
    topic = TopicConfig("orders", topic_type)
    is_both = kind is MessageType.TRANSACTION and "DELAY" in held
    is_mixed = topic_type is MessageType.MIXED and kind not in (MessageType.PRIORITY, MessageType.LITE)
    if not is_both and (topic_type is kind or is_mixed):
        check_message(message, topic)
        return
    with pytest.raises(MessageRefused, match=kind.value) as refused:
        check_message(message, topic)
    assert refused.value.name == "MESSAGE_TYPE_MISMATCH"


@pytest.mark.parametrize(
    ("held", "topic_type", "remedy"),
    [
        ({}, MessageType.DELAY, "Give it a delivery time (produce --delay or --at), or send"),
        ({}, MessageType.FIFO, "Give it a message group (produce --group), or send"),
        ({}, MessageType.LITE, "--type normal"),
        (
            {"__SHARDINGKEY": "ann"},
            MessageType.NORMAL,
            "Send it to a topic for its type: millstream topic create NAME --type fifo.",
        ),
        ({"_SYS_MSG_PRIORITY_": "7"}, MessageType.DELAY, "--type priority"),
    ],
)
def test_a_refusal_for_the_type_says_what_fits(held: dict[str, str], topic_type: MessageType, remedy: str) -> None:
    with pytest.raises(MessageRefused) as refused:
        check_message(OutgoingMessage("orders", b"x", held), TopicConfig("orders", topic_type))
    assert remedy in refused.value.remedy


KINDS = {
    MessageType.LITE: "ILLEGAL_LITE_TOPIC",
    MessageType.PRIORITY: "ILLEGAL_PRIORITY",
    MessageType.MIXED: "UNSUPPORTED_FEATURE",
}


@pytest.mark.parametrize(("kind", "error"), KINDS.items())
def test_a_type_that_only_the_sender_names_counts_too(kind: MessageType, error: str) -> None:
    with pytest.raises(MessageRefused) as refused:
        check_message(replace(GOOD, message_type=kind), TopicConfig("orders", kind))
    assert refused.value.name == error


@pytest.mark.parametrize("priority", ["", "-1", "+1", "1.5", "high", "2147483648", "9" * 5_000, "١"])
@pytest.mark.parametrize("more", [{}, {"__SHARDINGKEY": "ann"}])
def test_what_is_no_priority_is_refused_and_never_stored(priority: str, more: dict[str, str]) -> None:
    topic = MIXED if more else TopicConfig("orders", MessageType.PRIORITY)
    with pytest.raises(MessageRefused) as refused:
        check_message(with_properties(_SYS_MSG_PRIORITY_=priority, **more), topic)
    assert refused.value.name == "ILLEGAL_PRIORITY"


def test_a_priority_topic_takes_no_message_without_a_priority() -> None:
    with pytest.raises(MessageRefused) as refused:
        check_message(replace(GOOD, message_type=MessageType.PRIORITY), TopicConfig("orders", MessageType.PRIORITY))
    assert refused.value.name == "ILLEGAL_PRIORITY"


@pytest.mark.parametrize("group", ["", " ", "a\x1fb", "x" * 65, "é" * 33])
def test_illegal_message_groups_are_refused(group: str) -> None:
    with pytest.raises(MessageRefused) as refused:
        check_message(with_properties(__SHARDINGKEY=group), MIXED)
    assert refused.value.name == "ILLEGAL_MESSAGE_GROUP"


def test_a_message_group_has_63_bytes_at_most_as_with_rocketmq_s_proxy() -> None:
    check_message(with_properties(__SHARDINGKEY="x" * 63), MIXED)
    with pytest.raises(MessageRefused) as refused:
        check_message(with_properties(__SHARDINGKEY="x" * 64), MIXED)
    assert refused.value.name == "ILLEGAL_MESSAGE_GROUP"


@pytest.mark.parametrize(
    ("user", "tag", "keys", "named"),
    [
        ({f"p{n}": "" for n in range(129)}, None, (), "129"),
        ({"p": "x" * 16 * 1024}, None, (), "16385"),
        ({"p": "é" * 8192}, None, (), "16385"),
        ({}, "t" * 8192, ("k" * 8193,), "16385"),
    ],
)
def test_what_a_sender_of_a_proxy_gives_is_bounded(
    user: dict[str, str], tag: str | None, keys: tuple[str, ...], named: str
) -> None:
    with pytest.raises(MessageRefused, match=named) as refused:
        check_user_properties(user, tag, keys)
    assert refused.value.name == "PROPERTIES_TOO_LARGE"


def test_properties_of_30720_bytes_are_taken() -> None:
    check_message(with_properties(p="x" * (30 * 1024 - 1)), TOPIC)


@pytest.mark.parametrize("topic", [TopicConfig("orders"), TopicConfig("orders", MessageType.FIFO)])
@pytest.mark.parametrize("held", [{}, {"DELAY": "3"}, {"__SHARDINGKEY": "g" * 64}])
def test_without_types_a_topic_takes_messages_of_any(topic: TopicConfig, held: dict[str, str]) -> None:
    check_message(with_properties(**held), topic, typed=False)


@pytest.mark.parametrize(
    ("message", "topic"),
    [
        (GOOD, TopicConfig("orders", MessageType.PRIORITY)),
        (GOOD, TopicConfig("orders", MessageType.LITE)),
        (with_properties(__LITE_TOPIC="l"), TOPIC),
    ],
)
def test_without_types_too_a_message_needs_what_its_topic_is_made_of(
    message: OutgoingMessage, topic: TopicConfig
) -> None:
    with pytest.raises(MessageRefused) as refused:
        check_message(message, topic, typed=False)
    assert refused.value.name == "MESSAGE_TYPE_MISMATCH"


def test_a_fifo_message_needs_a_message_group() -> None:
    with pytest.raises(MessageRefused) as refused:
        check_message(replace(GOOD, message_type=MessageType.FIFO), MIXED)
    assert refused.value.name == "ILLEGAL_MESSAGE_GROUP"


@pytest.mark.parametrize(
    "topic", [TopicConfig("orders", permission=Permission.READ), TopicConfig("orders", write_queues=0)]
)
def test_a_topic_without_a_writable_queue_is_forbidden(topic: TopicConfig) -> None:
    with pytest.raises(NameRefused) as refused:
        check_messages([GOOD], topic)
    assert refused.value.name == "FORBIDDEN"


def test_a_system_topic_cannot_be_written() -> None:
    message = replace(GOOD, topic="SCHEDULE_TOPIC_XXXX")
    with pytest.raises(NameRefused) as refused:
        check_messages([message], TopicConfig("SCHEDULE_TOPIC_XXXX"))
    assert refused.value.name == "ILLEGAL_TOPIC"


def test_a_send_has_one_to_32768_messages_of_one_topic() -> None:
    check_messages([GOOD, GOOD], TOPIC)
    for messages in ([], [GOOD] * (MAX_SEND_MESSAGES + 1), [GOOD, replace(GOOD, topic="other")]):
        with pytest.raises(MessageRefused) as refused:
            check_messages(messages, TOPIC)
        assert refused.value.name == "MESSAGE_MALFORMED"


def test_user_properties_may_not_take_reserved_names() -> None:
    check_user_properties({"colour": "red"})
    with pytest.raises(MessageRefused, match="UNIQ_KEY") as refused:
        check_user_properties({"UNIQ_KEY": "mine"})
    assert refused.value.name == "ILLEGAL_PROPERTY"


@pytest.mark.parametrize("key", ["", " ", "two words", "a\x00"])
def test_keys_are_single_printable_words(key: str) -> None:
    check_keys(["one", "two"])
    with pytest.raises(MessageRefused) as refused:
        check_keys(["one", key])
    assert refused.value.name == "ILLEGAL_KEY"
