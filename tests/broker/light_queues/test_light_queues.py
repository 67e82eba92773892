"""Light queues at a broker: what goes to them, what groups pop from them, and how they go."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from broker_bench import Bench, attempts, bodies, open_bench, running, settle

from millstream.broker.delivery.admission import plain_properties
from millstream.broker.light_queues.dispatcher import RouteDispatcher
from millstream.broker.pop.dead_letters import ORIGIN_TOPIC
from millstream.broker.queues import consumer_groups
from millstream.broker.queues.light_copies import COPY_TOPIC
from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.light_queue import light_queue
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, DeadLetterQuery
from millstream.model.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, encode_properties
from millstream.model.routing import routing_table
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from millstream.protocol.record_encoder import PlainRecord

SESSION = "%LMQ%mqtt-a"
GROUP = "CID_MQTT"


def route(key: str, value: object = None) -> OutgoingMessage:
    body = b"" if value is None else json.dumps(value).encode()
    return OutgoingMessage(ROUTES_TOPIC, body, {"KEYS": key})


def declare(name: str, group: str = GROUP, kind: str = "mqtt", **more: object) -> OutgoingMessage:
    return route(f"queue/{name}", {"kind": kind, "group": group, **more})


def bind(name: str, text: str = "#", *, topic: str = "t", binding_id: str = "1") -> OutgoingMessage:
    return route(f"bind/{name}/{binding_id}", {"topic": topic, "mqtt": text})


async def put(bench: Bench, *routes: OutgoingMessage) -> None:
    await bench.broker.delivery.store_state(routes)


async def pop_session(bench: Bench, *, invisible_ms: int = 60_000, wait_ms: int = 0) -> list[str]:
    return bodies(await bench.pop(GROUP, topic=SESSION, invisible_ms=invisible_ms, wait_ms=wait_ms))


async def test_a_bound_queue_gets_what_fits_its_filter_and_the_topic_everything(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a", "f/+/x"))
    await bench.send("one", mqtt_topic="f/1/x")
    await bench.send("two", mqtt_topic="f/1/y")
    await bench.send("three", mqtt_topic="f/2/x")
    popped = await bench.pop(GROUP, topic=SESSION)
    assert bodies(popped) == ["one", "three"]
    assert [(p.message.topic, p.message.queue_id, p.message.queue_offset) for p in popped] == [("t", 0, 0), ("t", 0, 1)]
    assert bodies(await bench.pop()) == ["one", "two", "three"]


async def test_messages_that_are_read_together_are_those_that_are_read_one_by_one(
    bench: Bench,
) -> None:
    # A session of more than one record's room has its messages as copies.
    names = ["mqtt-a", *[f"mqtt-{'x' * 90}{number}" for number in range(400)]]
    for name in names:
        await put(bench, declare(name), bind(name))
    await bench.send("one", own="1")
    await bench.send("two")
    reader = bench.broker.delivery.popper.reader
    for name in (names[0], names[-1]):
        stored_name = light_queue(name)
        run = reader.message_run(stored_name, 0, 0, 2, 1 << 20)
        assert run == [reader.message_at(stored_name, 0, offset) for offset in (0, 1)]
        assert [(one.topic, one.properties.get("own")) for one in run or ()] == [("t", "1"), ("t", None)]


async def test_a_message_goes_once_to_a_queue_of_which_several_bindings_fit(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a", "#", binding_id="1"), bind("mqtt-a", "+", binding_id="2"))
    await bench.send("one")
    assert await pop_session(bench) == ["one"]
    assert await pop_session(bench) == []


async def test_amqp_bindings_look_at_exchange_key_and_headers(bench: Bench) -> None:
    def amqp(name: str, **said: object) -> list[OutgoingMessage]:
        return [declare(name, name, "amqp"), route(f"bind/{name}/1", {"topic": "t", "amqp": said})]

    await put(bench, *amqp("direct", type="direct", exchange="", key="t"), *amqp("fan", type="fanout", exchange="t"))
    await put(bench, *amqp("topic", type="topic", exchange="e", key="*.b"))
    await put(bench, *amqp("headers", type="headers", exchange="e", key="", arguments={"h": "1"}))
    await bench.send("default", amqp_exchange="", amqp_rk="t")
    await bench.send("plain")
    await bench.send("key", amqp_exchange="e", amqp_rk="a.b")
    await bench.send("header", amqp_exchange="e", amqp_rk="c", h="1")
    found = {
        name: bodies(await bench.pop(name, topic=f"%LMQ%{name}")) for name in ("direct", "fan", "topic", "headers")
    }
    assert found == {"direct": ["default"], "fan": ["plain"], "topic": ["key"], "headers": ["header"]}


async def test_the_queue_is_popped_acknowledged_and_delivered_again_like_a_topic(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    await bench.send(*"abc")
    first, second, _ = await bench.pop(GROUP, topic=SESSION, invisible_ms=1_000)
    bench.ack(first, group=GROUP, topic=SESSION)
    delivery = bench.broker.delivery
    later = delivery.change_invisible(ChangeInvisibleRequest(GROUP, SESSION, second.handle, 5_000))
    bench.clock.advance_ms(1_000)
    again = await bench.pop(GROUP, topic=SESSION)
    assert (bodies(again), attempts(again)) == (["c"], [2])
    handle = again[0].handle
    errors = delivery.ack_all(GROUP, SESSION, [(0, handle.queue_offset, handle.pop_time_ms), (0, 1, later.pop_time_ms)])
    assert errors == {}
    assert bench.broker.queues.committed_offset(GROUP, SESSION, 0) == 3
    assert delivery.count_undelivered(GROUP, SESSION, 0) == 0


async def test_a_queue_that_never_had_a_message_has_no_ledger_however_often_it_is_popped(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    for _ in range(2):
        assert await pop_session(bench) == []
    assert bench.broker.delivery.popper.offsets.ledger(GROUP, SESSION, 0) is None
    waiting = asyncio.create_task(pop_session(bench, wait_ms=60_000))
    await settle()
    await bench.send("one")
    assert await waiting == ["one"]


async def test_a_preview_takes_nothing(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    await bench.send("a", "b")
    found, undelivered = await bench.broker.delivery.peek(GROUP, SESSION, None, 32)
    assert ([message.body for message in found], undelivered) == ([b"a", b"b"], 2)
    assert await pop_session(bench) == ["a", "b"]


async def test_a_pop_that_waits_is_woken_by_an_entry(tmp_path: Path) -> None:
    async with open_bench(tmp_path, real_time=True) as bench:
        await put(bench, declare("mqtt-a"), bind("mqtt-a"))
        waiting = bench.waiting_pop(GROUP, topic=SESSION)
        await settle()
        await bench.send("late")
        assert bodies(await waiting) == ["late"]


async def test_a_message_without_attempts_left_is_a_dead_letter_of_its_own_topic(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("g", max_attempts=1))
    await put(bench, declare("share-1", "g", "share"), bind("share-1"))
    await bench.send("bad")
    await bench.pop(topic="%LMQ%share-1", invisible_ms=1_000)
    bench.clock.advance_ms(1_000)
    assert await bench.pop(topic="%LMQ%share-1") == []
    (letter,) = bench.broker.delivery.dead_letters(DeadLetterQuery("g")).letters
    assert letter.origin_topic == "t"
    dead = await bench.broker.delivery.peek("reader", "%DLQ%g", None, 1)
    assert not {MULTI_DISPATCH, MULTI_QUEUE_OFFSET}.intersection(dead[0][0].properties)
    assert dead[0][0].properties[ORIGIN_TOPIC] == "t"


async def test_a_delivery_can_be_made_a_dead_letter(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    await bench.send("bad")
    (popped,) = await bench.pop(GROUP, topic=SESSION)
    await bench.broker.delivery.move_to_dead_letter(AckRequest(GROUP, SESSION, popped.handle))
    assert bench.broker.queues.committed_offset(GROUP, SESSION, 0) == 1
    assert len(bench.broker.delivery.dead_letters(DeadLetterQuery(GROUP)).letters) == 1


async def test_only_the_group_of_the_queue_reads_it_and_nobody_writes_it(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    with pytest.raises(NameRefused, match="MS-2115"):
        await bench.pop("other", topic=SESSION)
    with pytest.raises(NameRefused, match="MS-2115"):
        await bench.broker.delivery.peek("other", SESSION, None, 1)
    with pytest.raises(NameRefused):
        await bench.send("x", topic=SESSION)
    with pytest.raises(NameRefused, match="MS-2103"):
        bench.broker.topics.create(TopicConfig("%LMQ%other"))
    with pytest.raises(NameRefused, match="MS-2103"):
        bench.broker.topics.delete(SESSION)


async def test_a_group_that_begins_at_the_end_gets_all_of_its_light_queue(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig(GROUP, first_position=FirstPosition.LAST))
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    await bench.send("early")
    assert await pop_session(bench) == ["early"]


async def test_a_group_by_the_name_of_the_sessions_group_decides_nothing_for_them(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig(GROUP, max_attempts=1, enabled=False))
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    await bench.send("kept")
    for attempt in (1, 2):
        popped = await bench.pop(GROUP, topic=SESSION, invisible_ms=1_000)
        assert (bodies(popped), attempts(popped)) == (["kept"], [attempt])
        bench.clock.advance_ms(1_000)


async def test_what_a_client_says_of_light_queues_does_not_count(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a", topic="bound"))
    bench.broker.topics.create(TopicConfig("bound"))
    said = {MULTI_DISPATCH: SESSION, MULTI_QUEUE_OFFSET: "0"}
    await bench.send("forged", **said)
    await bench.send("true", topic="bound", **said)
    assert await pop_session(bench) == ["true"]
    held = (await bench.pop())[0].message.properties
    assert not {MULTI_DISPATCH, MULTI_QUEUE_OFFSET}.intersection(held)


async def test_plain_records_of_a_bound_topic_go_to_light_queues(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    delivery, peer = bench.broker.delivery, Address("10.0.0.9", 4)
    topic = delivery.plain_topic("t")
    assert topic is not None
    held = {"TAGS": "a", "own": "1"}
    plain = [PlainRecord("t", 0, b"%d" % number, held, encode_properties(held), 1, 5, peer) for number in range(3)]
    stored = asyncio.get_running_loop().create_future()
    delivery.store_plain(topic, plain, lambda places, error: stored.set_result((places, error)))
    places, error = await stored
    assert ([place.queue_offset for place in places], error) == ([0, 1, 2], None)
    found = [popped.message for popped in await bench.pop(GROUP, topic=SESSION)]
    own = [popped.message for popped in await bench.pop()]
    for light, ordinary in zip(found, own, strict=True):
        assert (light.body, light.properties, light.system_flag, light.born_timestamp_ms, light.born_host) == (
            ordinary.body,
            held,
            SystemFlag.COMPRESSED,
            5,
            peer,
        )
    assert plain_properties(f"{MULTI_DISPATCH}\x01{SESSION}\x02") is None


async def test_a_plain_record_names_its_light_queues_as_any_other_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mqtt-a", "mqtt-b"):
        await put(bench, declare(name), bind(name))
    delivery, held = bench.broker.delivery, {"own": "1"}
    topic = delivery.plain_topic("t")
    assert topic is not None

    async def store() -> bytes:
        plain = PlainRecord("t", 0, b"x", held, encode_properties(held), 0, 5, Address("10.0.0.9", 4))
        stored = asyncio.get_running_loop().create_future()
        delivery.store_plain(topic, [plain], lambda places, error: stored.set_result(places[0].log_offset))
        record = delivery.popper.reader.store.record_at(await stored)
        assert record is not None
        return bytes(record)

    plain = decode_record(await store())
    assert plain.properties == {"own": "1", MULTI_DISPATCH: f"{SESSION},%LMQ%mqtt-b", MULTI_QUEUE_OFFSET: "0,0"}
    monkeypatch.setattr(RouteDispatcher, "dispatch_plain", lambda *_: False)
    general = decode_record(await store())
    assert general.properties == {**plain.properties, MULTI_QUEUE_OFFSET: "1,1"}
    assert list(general.properties) == list(plain.properties)


async def test_delayed_messages_go_to_light_queues_when_they_are_due(tmp_path: Path) -> None:
    async with open_bench(tmp_path, takes=MessageType.MIXED) as bench:
        await put(bench, declare("mqtt-a"), bind("mqtt-a"))
        due_ms = bench.clock.now_ms() + 5_000
        await bench.send("later", TIMER_DELIVER_MS=str(due_ms))
        assert await pop_session(bench) == []
        bench.clock.advance_ms(6_000)
        assert await pop_session(bench, wait_ms=30_000) == ["later"]


async def test_a_start_finds_routes_messages_and_deliveries_as_they_were(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await put(bench, declare("mqtt-a"), bind("mqtt-a", "+/x"))
        await bench.send("a", "b", mqtt_topic="1/x")
        popped = await bench.pop(GROUP, topic=SESSION, max_messages=1)
        bench.ack(*popped, group=GROUP, topic=SESSION)
    async with running(tmp_path) as broker:
        again = Bench(broker, bench.clock)
        await again.send("c", mqtt_topic="2/x")
        assert bodies(await again.pop(GROUP, topic=SESSION)) == ["b", "c"]


async def test_a_queue_that_is_taken_back_is_gone_with_its_bindings_and_its_ledger(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    await bench.send("old")
    await bench.pop(GROUP, topic=SESSION)
    await put(bench, route("queue/mqtt-a"))
    with pytest.raises(NameRefused, match="MS-2101"):
        await bench.pop(GROUP, topic=SESSION)
    await bench.send("between")
    await put(bench, declare("mqtt-a"))
    await bench.send("unbound")
    await put(bench, bind("mqtt-a"))
    await bench.send("new")
    popped = await bench.pop(GROUP, topic=SESSION)
    assert [(p.message.body, p.message.queue_offset) for p in popped] == [(b"new", 0)]


async def test_what_a_crash_left_of_a_queue_that_was_taken_back_goes_at_the_next_start(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await put(bench, declare("mqtt-a"), bind("mqtt-a"))
        await bench.send("old")
        bench.broker.maintenance.light_queues.dispatcher.on_removed = lambda name, config, bindings: None
        await put(bench, route("queue/mqtt-a"))
    async with running(tmp_path) as broker:
        again = Bench(broker, bench.clock)
        assert SESSION not in broker.maintenance.store.topics
        await put(again, declare("mqtt-a"))
        await again.send("unbound")
        assert bodies(await again.pop(GROUP, topic=SESSION)) == []


@pytest.fixture
def sweep(bench: Bench) -> Callable[[], Awaitable[None]]:
    return bench.broker.maintenance.light_queues.sweep


async def test_a_queue_goes_by_itself_when_its_time_is_over(bench: Bench, sweep: Callable[[], Awaitable[None]]) -> None:
    expires_ms = bench.clock.now_ms() + 10_000
    await put(bench, declare("mqtt-a", expires_ms=expires_ms), bind("mqtt-a"), declare("mqtt-b"))
    queues = bench.broker.maintenance.light_queues
    await sweep()
    assert [name for name, _ in queues.list_queues()] == [SESSION, "%LMQ%mqtt-b"]
    bench.clock.advance_ms(10_000)
    await sweep()
    await settle()
    assert [name for name, _ in queues.list_queues()] == ["%LMQ%mqtt-b"]
    assert queues.dispatcher.table.binding_count == 0


async def test_a_message_that_has_expired_is_passed_over_but_for_who_asks_for_it(bench: Bench) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    soon = str(bench.clock.now_ms() + 1_000)
    await bench.send("short", __EXPIRES_MS=soon)
    await bench.send("long")
    (first, _) = await bench.pop(GROUP, topic=SESSION, invisible_ms=500)
    assert first.message.body == b"short"
    bench.clock.advance_ms(1_000)
    assert await pop_session(bench) == ["long"]
    assert bodies(await bench.pop()) == ["long"]
    assert bodies(await bench.pop("h", takes_expired=True)) == ["short", "long"]
    statistics = bench.broker.maintenance.statistics
    assert {pair: count.number for pair, count in statistics.expired.items()} == {(GROUP, "t"): 1, ("g", "t"): 1}
    assert statistics.outgoing[GROUP, "t"].messages == 3


@pytest.mark.parametrize(
    "said",
    [
        route("queue/mqtt-a", {"kind": "else", "group": "g"}),
        route("queue/mqtt-a", {"kind": "mqtt"}),
        route("queue/mqtt-a/b", {"kind": "mqtt", "group": "g"}),
        route("queue/$a", {"kind": "mqtt", "group": "g"}),
        route("bind/mqtt-a/1", {"topic": "t", "mqtt": "a#"}),
        route("bind/mqtt-a/1", {"topic": "t"}),
        route("bind/mqtt-a/1", {"topic": ROUTES_TOPIC, "mqtt": "#"}),
        route("other/mqtt-a", {}),
    ],
)
async def test_a_route_that_means_nothing_is_refused_and_not_stored(bench: Bench, said: OutgoingMessage) -> None:
    with pytest.raises(NameRefused, match=r"MS-2103|MS-2113"):
        await put(bench, said)
    assert bench.broker.maintenance.store.max_offset(ROUTES_TOPIC, 0) == 0


async def test_more_queues_and_bindings_than_the_limits_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing_table, "MAX_LIGHT_QUEUES", 1)
    monkeypatch.setattr(routing_table, "MAX_BINDINGS", 1)
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    await put(bench, declare("mqtt-a"), bind("mqtt-a", "+"))
    with pytest.raises(NameRefused, match="MS-2114"):
        await put(bench, declare("mqtt-b"))
    with pytest.raises(NameRefused, match="MS-2114"):
        await put(bench, bind("mqtt-a", binding_id="2"))


async def test_a_message_that_too_many_queues_want_is_refused_and_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing_table, "MAX_LIGHT_QUEUES_OF_MESSAGE", 1)
    await put(bench, declare("mqtt-a"), bind("mqtt-a", "a"), declare("b", "b", "amqp"), bind("b", "#"))
    with pytest.raises(MessageRefused, match="MS-3024"):
        await bench.send("both", mqtt_topic="a")
    await bench.send("one", mqtt_topic="b")
    assert bodies(await bench.pop()) == ["one"]


async def test_light_queues_that_a_record_has_no_room_to_name_get_the_message_by_a_copy(bench: Bench) -> None:
    names = [f"mqtt-{number:032}" for number in range(900)]
    await put(bench, *[each for name in names for each in (declare(name), bind(name))])
    await bench.send("many", note="n" * 100, TAGS="tag")
    for name in names:
        (popped,) = await bench.pop(GROUP, topic=f"%LMQ%{name}")
        message = popped.message
        assert (message.topic, message.body, message.queue_offset) == ("t", b"many", 0)
        assert message.properties == {"note": "n" * 100, "TAGS": "tag"}
    assert bench.broker.maintenance.store.max_offset(COPY_TOPIC, 0) == 1
    assert bodies(await bench.pop()) == ["many"]


async def test_a_damaged_message_is_passed_over(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await put(bench, declare("mqtt-a"), bind("mqtt-a"))
    await bench.send(*"abc")
    entry = bench.broker.maintenance.store.entries("t", 0, 1, 1)[0]
    (segment,) = (bench.broker.directory / "store" / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(entry.log_offset + entry.size_bytes - 1)
        file.write(b"?")
    with caplog.at_level(logging.ERROR):
        assert await pop_session(bench) == ["a", "c"]


async def test_the_group_of_a_queue_is_known_with_its_lag_before_anybody_reads_it(bench: Bench) -> None:
    groups, queues = bench.broker.groups, bench.broker.queues
    await put(bench, declare("amqp-q", "q", "amqp"), bind("amqp-q"), declare("mqtt-a"), bind("mqtt-a"))
    await bench.send("one")
    assert groups.look_up("q") == GroupConfig("q", max_attempts=1000)
    assert [group.name for group in groups.list_known()] == ["q"]
    assert groups.find("q") is None
    assert queues.topics_of("q") == ["%LMQ%amqp-q"]
    [progress] = queues.own_progress("q")
    assert (progress.ready, progress.in_flight, progress.lag) == (1, 0, 1)
    # Its settings hold once somebody has given it some.
    groups.update(GroupConfig("q", max_attempts=3))
    assert [group.max_attempts for group in groups.list_known()] == [3]
    groups.delete("q")
    await put(bench, declare("amqp-q", "r", "amqp"))
    assert [group.name for group in groups.list_known()] == ["r"]
    assert (queues.topics_of("q"), queues.topics_of("r")) == ([], ["%LMQ%amqp-q"])
    await put(bench, route("queue/amqp-q"))
    assert groups.list_known() == []
    for name in ("q", "r", GROUP):
        with pytest.raises(NameRefused, match="does not exist"):
            groups.look_up(name)


async def test_a_group_that_only_a_queue_has_admits_nobody_to_topics(tmp_path: Path) -> None:
    async with open_bench(tmp_path, auto_create_groups=False) as bench:
        await put(bench, declare("amqp-q", "q", "amqp"))
        with pytest.raises(NameRefused, match="does not exist"):
            await bench.pop("q")


async def test_groups_of_queues_are_listed_up_to_the_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "MAX_GROUPS", 3)
    bench.broker.groups.create(GroupConfig("own"))
    await put(bench, *[declare(f"amqp-{number}", f"q{number}", "amqp") for number in range(5)])
    assert len(bench.broker.groups.list_known()) == 3
