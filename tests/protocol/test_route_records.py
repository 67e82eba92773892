"""Route records: what is written is read again, and what means nothing is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import NameRefused
from millstream.model.routing.amqp_bindings import AMQP_KINDS, AmqpBinding
from millstream.model.routing.routes import LIGHT_KINDS, LightQueueConfig, RouteBinding, mqtt_name_of, place_in_amqp
from millstream.protocol import route_records
from millstream.protocol.route_records import (
    MAX_BINDING_ID_CHARACTERS,
    binding_key,
    decode_route,
    encode_binding,
    encode_queue,
    queue_key,
)

NAMES = st.from_regex(r"[a-z0-9_|-][a-z0-9%_|-]{0,20}", fullmatch=True)
NUMBERS = st.one_of(st.none(), st.integers(0, 1 << 50))
QUEUES = st.builds(LightQueueConfig, st.sampled_from(LIGHT_KINDS), NAMES, NUMBERS, NUMBERS)
TEXT = st.text(alphabet='ab.é "\\', max_size=10)
ARGUMENTS = st.dictionaries(TEXT, st.one_of(st.none(), TEXT), max_size=3).map(lambda held: tuple(sorted(held.items())))
BINDINGS = st.one_of(
    st.builds(RouteBinding, st.just("t"), st.sampled_from(["#", "a/+/b", "é"])),
    st.builds(
        RouteBinding,
        st.just("t"),
        st.none(),
        st.builds(AmqpBinding, st.sampled_from(AMQP_KINDS), TEXT, TEXT, ARGUMENTS),
    ),
)


@given(NAMES, QUEUES, st.text(alphabet="ab/1é", min_size=1, max_size=10), BINDINGS)
def test_what_a_record_says_is_read_again(
    name: str, config: LightQueueConfig, binding_id: str, binding: RouteBinding
) -> None:
    declared = decode_route(queue_key(name), encode_queue(config))
    assert (declared.name, declared.binding_id, declared.value) == (name, None, config)
    bound = decode_route(binding_key(name, binding_id), encode_binding(binding))
    assert (bound.name, bound.binding_id, bound.value) == (name, binding_id, binding)
    assert decode_route(queue_key(name), b"").value is None
    assert decode_route(binding_key(name, binding_id), b"").value is None


def test_light_queues_that_are_alike_share_what_is_known_of_them_unless_they_expire() -> None:
    def read(name: str, config: LightQueueConfig) -> object:
        return decode_route(queue_key(name), encode_queue(config)).value

    lasting = LightQueueConfig("mqtt", "shared-by-many")
    assert read("a", lasting) is read("b", lasting)
    expiring = LightQueueConfig("mqtt", "shared-by-many", 7)
    assert read("a", expiring) == read("b", expiring)
    assert read("a", expiring) is not read("b", expiring)


def test_configurations_beyond_those_that_are_shared_are_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_records, "_MAX_SHARED_CONFIGS", 0)
    config = LightQueueConfig("mqtt", "never-shared")
    assert decode_route(queue_key("a"), encode_queue(config)).value == config


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("queue/a", b"[]"),
        ("queue/a", b'{"kind": "mqtt", "group": "g", "expires_ms": -1}'),
        ("bind/a", b"{}"),
        ("bind/a/" + "x" * (MAX_BINDING_ID_CHARACTERS + 1), b""),
        ("bind/a/1", b'{"topic": "t", "mqtt": "#", "amqp": {"type": "fanout"}}'),
        ("bind/a/1", b'{"topic": "t", "amqp": {"type": "ring"}}'),
        ("", b""),
    ],
)
def test_what_means_nothing_is_refused(key: str, body: bytes) -> None:
    with pytest.raises(NameRefused, match="MS-2113"):
        decode_route(key, body)


def test_fields_of_later_releases_are_passed_over() -> None:
    said = b'{"kind": "mqtt", "group": "g", "colour": "red"}'
    assert decode_route("queue/a", said).value == LightQueueConfig("mqtt", "g")


@pytest.mark.parametrize(
    ("properties", "name", "place"),
    [
        ({}, "t", ("t", "")),
        ({"TAGS": "a"}, "t/a", ("t", "a")),
        ({"TAGS": "a", "mqtt_topic": "x/y", "originMqttTopic": "z"}, "x/y", ("t", "x.y")),
        ({"originMqttTopic": "z"}, "z", ("t", "")),
        ({"amqp_exchange": "", "amqp_rk": "k", "TAGS": "a"}, "t/a", ("", "k")),
        ({"amqp_exchange": "e", "amqp_rk": "", "TAGS": "a"}, "t/a", ("e", "")),
    ],
)
def test_a_message_is_known_by_what_it_says_of_itself_else_by_topic_and_tag(
    properties: dict[str, str], name: str, place: tuple[str, str]
) -> None:
    assert (mqtt_name_of("t", properties), place_in_amqp("t", properties)) == (name, place)
