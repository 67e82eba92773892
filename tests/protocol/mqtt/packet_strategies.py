"""Packets of both versions that a peer may send, drawn by hypothesis."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Publish,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["packets", "versions"]

versions = st.sampled_from([ProtocolVersion.V3_1_1, ProtocolVersion.V5])
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
topics = texts.filter(lambda text: text and "+" not in text and "#" not in text)
payloads = st.binary(max_size=40)
ids = st.integers(1, 0xFFFF)
reasons = st.sampled_from(ReasonCode)
longs = st.integers(0, 0xFFFF_FFFF)
shorts = st.integers(0, 0xFFFF)
flags = st.integers(0, 1)
P = PropertyId

_MESSAGE = {
    P.PAYLOAD_FORMAT_INDICATOR: flags,
    P.MESSAGE_EXPIRY_INTERVAL: longs,
    P.CONTENT_TYPE: texts,
    P.RESPONSE_TOPIC: topics,
    P.CORRELATION_DATA: payloads,
}
_TOLD = {P.REASON_STRING: texts}
_AUTHENTICATION = {P.AUTHENTICATION_METHOD: texts, P.AUTHENTICATION_DATA: payloads}
_LIMITS = {
    P.SESSION_EXPIRY_INTERVAL: longs,
    P.RECEIVE_MAXIMUM: st.integers(1, 0xFFFF),
    P.MAXIMUM_PACKET_SIZE: st.integers(1, 0xFFFF_FFFF),
    P.TOPIC_ALIAS_MAXIMUM: shorts,
}


def properties(
    single: dict[PropertyId, st.SearchStrategy[int] | st.SearchStrategy[str] | st.SearchStrategy[bytes]],
    *,
    subscription_ids: int = 0,
) -> st.SearchStrategy[Properties]:
    """Some of the single properties, user properties in order, and up to so many subscription identifiers."""
    return st.builds(
        Properties,
        st.fixed_dictionaries({}, optional=single),
        st.lists(st.tuples(texts, texts), max_size=3),
        st.lists(st.integers(1, 268_435_455), max_size=subscription_ids),
    )


@cache
def packets(version: ProtocolVersion) -> st.SearchStrategy[Packet]:
    """Any packet of the version."""
    v5 = version is ProtocolVersion.V5

    def held(found: st.SearchStrategy[Properties]) -> st.SearchStrategy[Properties]:
        return found if v5 else st.just(NO_PROPERTIES)

    told = held(properties(_TOLD))
    wills = st.builds(
        Will,
        topics,
        payloads,
        st.integers(0, 2),
        st.booleans(),
        held(properties(_MESSAGE | {P.WILL_DELAY_INTERVAL: longs})),
    )
    users = st.one_of(
        st.just((None, None)),
        st.tuples(texts, payloads),
        st.tuples(texts, st.none()),
        *([st.tuples(st.none(), payloads)] if v5 else []),
    )
    connects = st.builds(
        lambda client, clean, alive, user, will, found: Connect(client, version, clean, alive, *user, will, found),
        texts,
        st.booleans(),
        shorts,
        users,
        st.none() | wills,
        held(properties(_LIMITS | _AUTHENTICATION | {P.REQUEST_PROBLEM_INFORMATION: flags})),
    )
    publishes = st.builds(
        lambda topic, payload, qos, retain, dup, packet_id, found: Publish(
            topic, payload, qos, retain, dup and qos > 0, packet_id if qos else 0, found
        ),
        topics,
        payloads,
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
        ids,
        held(properties(_MESSAGE | {P.TOPIC_ALIAS: shorts}, subscription_ids=3)),
    )
    kinds = st.sampled_from([PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP])
    reason = reasons if v5 else st.just(ReasonCode.SUCCESS)
    subscriptions = st.builds(
        TopicSubscription,
        texts,
        st.integers(0, 2),
        *([st.booleans(), st.booleans(), st.integers(0, 2)] if v5 else []),
    )
    granted = st.sampled_from([ReasonCode.SUCCESS, ReasonCode.GRANTED_QOS_1, ReasonCode.UNSPECIFIED_ERROR])
    connacks = (
        st.builds(Connack, st.booleans(), reasons, properties=properties(_LIMITS | _TOLD | {P.MAXIMUM_QOS: flags}))
        if v5
        else st.builds(Connack, st.booleans(), return_code=st.integers(0, 5))
    )
    both = [
        connects,
        connacks,
        publishes,
        st.builds(Acknowledgement, kinds, ids, reason, told),
        st.builds(
            Subscribe, ids, st.lists(subscriptions, min_size=1, max_size=3), held(properties({}, subscription_ids=1))
        ),
        st.builds(Suback, ids, st.lists(granted, min_size=1, max_size=3), told),
        st.builds(Unsubscribe, ids, st.lists(texts, min_size=1, max_size=3), held(properties({}))),
        st.builds(Unsuback, ids, st.lists(granted, max_size=3) if v5 else st.just([]), told),
        st.builds(Ping, st.sampled_from([PacketType.PINGREQ, PacketType.PINGRESP])),
        st.builds(Disconnect, reason, told),
    ]
    if v5:
        both.append(st.builds(Auth, reasons, properties(_AUTHENTICATION | _TOLD)))
    return st.one_of(both)
