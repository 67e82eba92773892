"""What applications do, by pika, a client of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amqp_ports import AmqpSite, running_amqp
from millstream.broker.delivery_service import DeliveryService
from millstream.model import properties as names
from millstream.model.errors import StoreError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest
from millstream.protocol.record import decode_record
from millstream.proxy.amqp import server
from millstream.proxy.throttle import Throttle, parse_throttle_rule
from patience import eventually_blocking

pika = pytest.importorskip("pika")

from pika import BasicProperties, exceptions  # noqa: E402
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpSite]:
    with running_amqp(tmp_path_factory.mktemp("amqp"), virtual_hosts=("team",)) as running:
        yield running


def connect(site: AmqpSite, **more: Any) -> BlockingConnection:
    return BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port, **more))


@pytest.fixture
def connection(site: AmqpSite) -> Iterator[BlockingConnection]:
    connection = connect(site)
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def queue(channel: BlockingChannel, name: str = "", **arguments: Any) -> str:
    """A durable queue of that name; without one, an exclusive queue of the server's."""
    declared = channel.queue_declare(name, durable=bool(name), exclusive=not name, arguments=arguments or None)
    return str(declared.method.queue)


def ready(channel: BlockingChannel, name: str) -> int:
    return int(channel.queue_declare(name, passive=True).method.message_count)


def get(channel: BlockingChannel, name: str, *, auto_ack: bool = True) -> tuple[Any, Any, bytes]:
    """The next message, which must come."""
    found: list[tuple[Any, Any, bytes]] = []

    def has_come() -> bool:
        method, properties, body = channel.basic_get(name, auto_ack=auto_ack)
        if method is not None:
            found.append((method, properties, body))
        return bool(found)

    eventually_blocking(has_come)
    return found[0]


def consume(channel: BlockingChannel, name: str, count: int, **more: Any) -> list[tuple[Any, Any, bytes]]:
    """So many messages, which stay unacknowledged; the consumer goes on."""
    found: list[tuple[Any, Any, bytes]] = []
    channel.basic_consume(name, lambda _, method, properties, body: found.append((method, properties, body)), **more)
    wait_for(channel, lambda: len(found) >= count)
    return found


def wait_for(channel: BlockingChannel, condition: Any) -> None:
    def look() -> bool:
        channel.connection.process_data_events(0.01)
        return bool(condition())

    eventually_blocking(look)


def failure(call: Any, *arguments: Any, **more: Any) -> tuple[int, str]:
    with pytest.raises(exceptions.ChannelClosedByBroker) as error:
        call(*arguments, **more)
    return error.value.reply_code, error.value.reply_text


def test_a_message_comes_back_with_all_its_properties(channel: BlockingChannel) -> None:
    name = queue(channel)
    sent = BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"text": "é", "number": 5, "big": 2**40, "yes": True, "none": None, "list": [1, {"a": "b"}]},
        delivery_mode=2,
        priority=3,
        correlation_id="correlation",
        reply_to="answers",
        expiration="600000",
        message_id="id-1",
        timestamp=1_700_000_000,
        type="kind",
        user_id="guest",
        app_id="tests",
    )
    channel.basic_publish("", name, b"body", sent)
    method, got, body = get(channel, name)
    assert body == b"body"
    assert got == sent
    assert (method.exchange, method.routing_key, method.redelivered, method.message_count) == ("", name, False, 0)


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000])
def test_bodies_of_all_sizes_come_whole(channel: BlockingChannel, size: int) -> None:
    name = queue(channel)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    channel.basic_publish("", name, body)
    assert get(channel, name)[2] == body


def test_exchanges_route_by_their_types(channel: BlockingChannel) -> None:
    names_of = {kind: queue(channel) for kind in ("direct", "topic", "fanout", "headers")}
    for kind, name in names_of.items():
        channel.exchange_declare(f"types-{kind}", kind)
        channel.queue_bind(name, f"types-{kind}", "a.*" if kind == "topic" else "a.b", {"x": "1", "x-match": "all"})
        for key, headers in (("a.b", {"x": "1"}), ("a.c", {"x": "2"}), ("b", {"x": "1", "y": 2})):
            body = f"{key} {headers['x']}".encode()
            channel.basic_publish(f"types-{kind}", key, body, BasicProperties(headers=headers))
    expected = {
        "direct": [b"a.b 1"],
        "topic": [b"a.b 1", b"a.c 2"],
        "fanout": [b"a.b 1", b"a.c 2", b"b 1"],
        "headers": [b"a.b 1", b"b 1"],
    }
    for kind, name in names_of.items():
        assert [get(channel, name)[2] for _ in expected[kind]] == expected[kind]
        assert ready(channel, name) == 0


def test_a_queue_gets_one_copy_however_many_bindings_fit(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.exchange_declare("copies", "topic")
    for key in ("a.*", "#", "a.b"):
        channel.queue_bind(name, "copies", key)
    channel.basic_publish("copies", "a.b", b"once")
    assert ready(channel, name) == 1


def test_exchanges_may_be_bound_to_exchanges(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.exchange_declare("outer", "direct")
    channel.exchange_declare("inner", "fanout")
    channel.exchange_bind("inner", "outer", "k")
    channel.queue_bind(name, "inner")
    channel.basic_publish("outer", "k", b"through", mandatory=True)
    channel.basic_publish("outer", "other", b"not")
    assert get(channel, name)[2] == b"through"
    channel.exchange_unbind("inner", "outer", "k")
    channel.basic_publish("outer", "k", b"not")
    assert ready(channel, name) == 0


def test_a_message_must_fit_every_binding_on_its_way(channel: BlockingChannel) -> None:
    name = queue(channel)
    for exchange in ("way-1", "way-2", "way-3"):
        channel.exchange_declare(exchange, "topic")
    channel.exchange_bind("way-2", "way-1", "a.#")
    channel.exchange_bind("way-3", "way-2", "#.z")
    channel.queue_bind(name, "way-3", "*.*.*")
    for key in ("a.b.z", "a.z", "a.b.c", "b.b.z", "a.y.z"):
        channel.basic_publish("way-1", key, key.encode())
    assert [get(channel, name)[2] for _ in range(2)] == [b"a.b.z", b"a.y.z"]
    assert ready(channel, name) == 0


def test_unbinding_and_deleting_an_exchange_end_its_routes(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.exchange_declare("ends", "fanout")
    channel.queue_bind(name, "ends")
    channel.queue_unbind(name, "ends")
    channel.basic_publish("ends", "", b"not")
    channel.queue_bind(name, "ends")
    channel.basic_publish("ends", "", b"yes")
    channel.exchange_delete("ends")
    assert ready(channel, name) == 1
    assert failure(channel.basic_publish, "ends", "", b"x")[0] == 404


def test_a_mandatory_message_that_no_queue_gets_comes_back(channel: BlockingChannel) -> None:
    with pytest.raises(exceptions.UnroutableError) as error:
        channel.basic_publish("", "nobody", b"back", mandatory=True)
    (returned,) = error.value.messages
    assert (returned.method.reply_code, returned.body) == (312, b"back")
    channel.basic_publish("amq.topic", "nobody", b"gone")


def test_an_alternate_exchange_gets_what_no_binding_takes(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.exchange_declare("others", "fanout")
    channel.exchange_declare("first", "direct", arguments={"alternate-exchange": "others"})
    channel.queue_bind(name, "others")
    channel.basic_publish("first", "no", b"left", mandatory=True)
    method, _, body = get(channel, name)
    # The one that it was published to, as at RabbitMQ.
    assert (method.exchange, body) == ("first", b"left")


def test_acknowledged_messages_are_gone_and_others_come_again_in_their_order(site: AmqpSite) -> None:
    connection = connect(site)
    channel = connection.channel()
    name = queue(channel, "acks")
    for number in range(5):
        channel.basic_publish("", name, b"%d" % number)
    found = consume(channel, name, 5)
    assert [body for _, _, body in found] == [b"0", b"1", b"2", b"3", b"4"]
    channel.basic_ack(found[1][0].delivery_tag, multiple=True)
    channel.basic_ack(found[3][0].delivery_tag)
    connection.close()
    with_others = connect(site)
    channel = with_others.channel()
    again = consume(channel, name, 2)
    assert [(body, method.redelivered) for method, _, body in again] == [(b"2", True), (b"4", True)]
    with_others.close()


def test_a_requeued_message_comes_again_and_a_rejected_one_does_not(channel: BlockingChannel) -> None:
    name = queue(channel)
    for body in (b"a", b"b"):
        channel.basic_publish("", name, body)
    method, _, body = get(channel, name, auto_ack=False)
    assert (body, method.redelivered) == (b"a", False)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = get(channel, name, auto_ack=False)
    assert (body, method.redelivered) == (b"a", True)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert get(channel, name)[2] == b"b"
    assert channel.basic_get(name) == (None, None, None)


def test_recover_puts_back_what_is_not_acknowledged(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.basic_publish("", name, b"a")
    get(channel, name, auto_ack=False)
    channel.basic_recover(requeue=True)
    assert get(channel, name)[0].redelivered


def test_a_consumer_gets_no_more_than_its_prefetch_count(channel: BlockingChannel) -> None:
    name = queue(channel)
    for number in range(5):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    found = consume(channel, name, 2)
    assert ready(channel, name) == 3
    channel.basic_ack(found[0][0].delivery_tag)
    wait_for(channel, lambda: len(found) == 3)
    channel.basic_ack(0, multiple=True)
    wait_for(channel, lambda: len(found) == 5)


def test_a_global_prefetch_count_is_shared_by_the_consumers_of_a_channel(channel: BlockingChannel) -> None:
    one, two = queue(channel), queue(channel)
    for name in (one, two):
        for _ in range(3):
            channel.basic_publish("", name, b"x")
    channel.basic_qos(prefetch_count=2, global_qos=True)
    found: list[Any] = []
    for name in (one, two):
        channel.basic_consume(name, lambda *each: found.append(each))
    wait_for(channel, lambda: len(found) == 2)
    assert ready(channel, one) + ready(channel, two) == 4


def test_consumers_of_a_queue_share_its_messages(site: AmqpSite, channel: BlockingChannel) -> None:
    name = queue(channel, "shared")
    found: list[list[bytes]] = [[], []]
    connections = [connect(site), connect(site)]
    for connection, bodies in zip(connections, found, strict=True):
        other = connection.channel()
        other.basic_qos(prefetch_count=1)
        other.basic_consume(
            name, lambda ch, method, _, body, to=bodies: (to.append(body), ch.basic_ack(method.delivery_tag))
        )
    for number in range(20):
        channel.basic_publish("", name, b"%d" % number)

    def all_came() -> bool:
        for connection in connections:
            connection.process_data_events(0.01)
        return len(found[0]) + len(found[1]) == 20

    eventually_blocking(all_came)
    assert min(map(len, found)) > 0
    for connection in connections:
        connection.close()


def test_a_cancelled_consumer_gets_nothing_more(channel: BlockingChannel) -> None:
    name = queue(channel, "cancels")
    found: list[Any] = []
    tag = channel.basic_consume(name, lambda *each: found.append(each), auto_ack=True)
    channel.basic_cancel(tag)
    channel.basic_publish("", name, b"x")
    assert ready(channel, name) == 1
    assert found == []


def test_the_client_is_told_when_its_queue_is_deleted(site: AmqpSite, channel: BlockingChannel) -> None:
    name = queue(channel, "deleted")
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(name, lambda *_: None)
    other = connect(site)
    other.channel().queue_delete(name)
    wait_for(channel, lambda: cancelled)
    other.close()


def test_queues_end_with_their_users(site: AmqpSite, channel: BlockingChannel) -> None:
    other = connect(site)
    theirs = other.channel()
    exclusive = queue(theirs)
    theirs.queue_declare("auto", auto_delete=True)
    tag = theirs.basic_consume("auto", lambda *_: None)
    assert failure(channel.queue_declare, exclusive, passive=True)[0] == 405
    theirs.basic_cancel(tag)
    other.close()
    for name in (exclusive, "auto"):

        def is_gone(name: str = name) -> bool:
            fresh = channel.connection.channel()
            return failure(fresh.queue_declare, name, passive=True)[0] == 404

        eventually_blocking(is_gone, not_yet=(pytest.fail.Exception, AssertionError))


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.exchange_declare("auto-exchange", "fanout", auto_delete=True)
    channel.queue_bind(name, "auto-exchange")
    channel.queue_unbind(name, "auto-exchange")
    assert failure(channel.exchange_declare, "auto-exchange", passive=True)[0] == 404


def test_a_rejected_message_goes_to_the_dead_letter_exchange_and_says_why(channel: BlockingChannel) -> None:
    dead = queue(channel)
    channel.exchange_declare("dead", "topic")
    channel.queue_bind(dead, "dead", "#")
    name = queue(channel, "lively", **{"x-dead-letter-exchange": "dead"})
    for _ in range(2):
        channel.basic_publish("", name, b"bad", BasicProperties(headers={"mine": 1}, message_id="m"))
        method, _, _ = get(channel, name, auto_ack=False)
        channel.basic_reject(method.delivery_tag, requeue=False)
        method, properties, body = get(channel, dead)
        assert (body, method.exchange, method.routing_key, properties.message_id) == (b"bad", "dead", name, "m")
        (death,) = properties.headers["x-death"]
        assert {key: death[key] for key in ("count", "reason", "queue", "exchange", "routing-keys")} == {
            "count": 1,
            "reason": "rejected",
            "queue": name,
            "exchange": "",
            "routing-keys": [name],
        }
        assert properties.headers["mine"] == 1
        assert properties.headers["x-first-death-reason"] == "rejected"


def test_messages_past_their_time_go_from_a_queue_that_nobody_reads(channel: BlockingChannel) -> None:
    dead = queue(channel)
    waiting = queue(channel, "wait-100", **{
        "x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead
    })  # fmt: skip
    channel.basic_publish("", waiting, b"queue's time")
    _, properties, body = get(channel, dead)
    assert body == b"queue's time"
    assert properties.headers["x-death"][0]["reason"] == "expired"
    own = queue(channel, "wait-own", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.basic_publish("", own, b"its own", BasicProperties(expiration="100"))
    _, properties, body = get(channel, dead)
    assert body == b"its own"
    assert properties.expiration is None
    assert properties.headers["x-death"][0]["original-expiration"] == "100"


def test_a_message_without_a_dead_letter_exchange_is_gone_once_it_is_past_its_time(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.basic_publish("", name, b"short", BasicProperties(expiration="1"))
    channel.basic_publish("", name, b"long")
    eventually_blocking(lambda: channel.basic_get(name, auto_ack=True)[2] == b"long")
    assert failure(channel.basic_publish, "", name, b"x", BasicProperties(expiration="soon"))[0] == 406


def test_a_full_queue_drops_its_oldest_messages(channel: BlockingChannel) -> None:
    dead = queue(channel)
    arguments = {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    name = queue(channel, "short-drop", **arguments)
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", name, body)
    assert ready(channel, name) == 2
    assert get(channel, name)[2] == b"2"
    _, properties, body = get(channel, dead)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"1", "maxlen")


def test_a_full_queue_may_refuse_new_messages(channel: BlockingChannel) -> None:
    name = queue(channel, "short-refuse", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", name, b"1")
    with pytest.raises(exceptions.NackError):
        channel.basic_publish("", name, b"2")
    assert ready(channel, name) == 1


def send_by_others(site: AmqpSite, topic: str, *bodies: bytes) -> None:
    """As a client of another protocol does, which names no exchange."""
    for body in bodies:
        site.run(site.backend.send([OutgoingMessage(topic, body, {})]))


def test_a_full_queue_is_within_its_length_whoever_sends(site: AmqpSite, channel: BlockingChannel) -> None:
    dead = queue(channel)
    dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.exchange_declare("strangers", "topic")
    for name, arguments in (
        ("others-drop", {}),
        ("others-refuse", {"x-overflow": "reject-publish"}),
        ("others-die", dying),
    ):
        queue(channel, name, **{"x-max-length": 2, **arguments})
        channel.queue_bind(name, "strangers", "#")
    send_by_others(site, "strangers", b"1", b"2", b"3")
    assert [get(channel, "others-drop")[2] for _ in range(2)] == [b"2", b"3"]
    assert [get(channel, "others-refuse")[2] for _ in range(2)] == [b"1", b"2"]
    # These are moved by a proxy, which looks once a second.
    _, properties, body = get(channel, dead)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"1", "maxlen")
    assert [get(channel, "others-die")[2] for _ in range(2)] == [b"2", b"3"]
    # Who asked before is told.
    send_by_others(site, "strangers", b"4", b"5")
    with pytest.raises(exceptions.NackError):
        channel.basic_publish("strangers", "x", b"6")


def test_messages_expire_in_a_queue_whoever_sends(site: AmqpSite, channel: BlockingChannel) -> None:
    dead = queue(channel)
    arguments = {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.exchange_declare("brief", "topic")
    name = queue(channel, "brief-expire", **arguments)
    channel.queue_bind(name, "brief", "#")
    send_by_others(site, "brief", b"1")
    _, properties, body = get(channel, dead)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"1", "expired")


def test_a_queue_is_within_its_bytes_whoever_sends(site: AmqpSite, channel: BlockingChannel) -> None:
    channel.exchange_declare("heavy", "topic")
    name = queue(channel, "heavy-drop", **{"x-max-length-bytes": 250})
    channel.queue_bind(name, "heavy", "#")
    send_by_others(site, "heavy", b"1" * 100, b"2" * 100, b"3" * 100)
    eventually_blocking(lambda: ready(channel, name) == 2)
    assert get(channel, name)[2] == b"2" * 100


def test_a_queue_with_priorities_delivers_the_highest_first(channel: BlockingChannel) -> None:
    name = queue(channel, "priorities", **{"x-max-priority": 5})
    for priority in (0, 3, 9, 5, 1):
        channel.basic_publish("", name, b"%d" % priority, BasicProperties(priority=priority))
    assert get(channel, name)[2] == b"9"
    channel.basic_qos(prefetch_count=1)
    found = consume(channel, name, 1)
    while len(found) < 4:
        channel.basic_ack(found[-1][0].delivery_tag)
        count = len(found)
        wait_for(channel, lambda: len(found) > count)  # noqa: B023 - it is called before the next turn
    bodies = [body for _, _, body in found]
    # The first one is what was there when the consumer came.
    assert bodies[1:] == sorted(bodies[1:], reverse=True)


def test_a_single_active_consumer_gets_all_and_another_one_follows(channel: BlockingChannel) -> None:
    name = queue(channel, "single", **{"x-single-active-consumer": True})
    first: list[bytes] = []
    second: list[bytes] = []
    tag = channel.basic_consume(name, lambda _c, _m, _p, body: first.append(body), auto_ack=True)
    channel.basic_consume(name, lambda _c, _m, _p, body: second.append(body), auto_ack=True)
    for number in range(4):
        channel.basic_publish("", name, b"%d" % number)
    wait_for(channel, lambda: len(first) == 4)
    assert second == []
    channel.basic_cancel(tag)
    channel.basic_publish("", name, b"next")
    wait_for(channel, lambda: second == [b"next"])


def test_a_queue_that_nobody_uses_goes_after_its_time(channel: BlockingChannel) -> None:
    name = queue(channel, "unused", **{"x-expires": 300})

    def is_gone() -> bool:
        return name not in hosts(channel)["/"].queues

    eventually_blocking(is_gone)


def hosts(channel: BlockingChannel) -> dict[str, Any]:
    return dict(_SITES[0].server.shared.topology.hosts)


_SITES: list[AmqpSite] = []


@pytest.fixture(autouse=True)
def _remember(site: AmqpSite) -> None:
    _SITES[:] = [site]


def test_a_message_that_was_delivered_too_often_is_dead(channel: BlockingChannel) -> None:
    dead = queue(channel)
    arguments = {"x-delivery-limit": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    name = queue(channel, "limited", **arguments)
    channel.basic_publish("", name, b"x")
    for _ in range(2):
        method, _, _ = get(channel, name, auto_ack=False)
        channel.basic_nack(method.delivery_tag, requeue=True)
    _, properties, _ = get(channel, dead)
    assert properties.headers["x-death"][0]["reason"] == "delivery_limit"


def test_answers_go_straight_to_who_asked(channel: BlockingChannel) -> None:
    requests = queue(channel, "requests")
    answers: list[bytes] = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda _c, _m, _p, body: answers.append(body), auto_ack=True)
    asked = BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    channel.basic_publish("", requests, b"question", asked)
    _, properties, _ = get(channel, requests)
    channel.basic_publish("", properties.reply_to, b"answer", BasicProperties(correlation_id="1"))
    wait_for(channel, lambda: answers == [b"answer"])


def test_a_purge_removes_what_is_ready(channel: BlockingChannel) -> None:
    name = queue(channel)
    for _ in range(40):
        channel.basic_publish("", name, b"x")
    get(channel, name, auto_ack=False)
    assert channel.queue_purge(name).method.message_count == 39
    assert ready(channel, name) == 0
    channel.basic_nack(0, multiple=True)
    assert get(channel, name)[0].redelivered


def test_queues_are_deleted_with_the_conditions_that_clients_set(channel: BlockingChannel) -> None:
    name = queue(channel, "conditions")
    channel.basic_publish("", name, b"x")
    fresh = channel.connection.channel()
    assert failure(fresh.queue_delete, name, if_empty=True)[0] == 406
    fresh = channel.connection.channel()
    tag = channel.basic_consume(name, lambda *_: None)
    assert failure(fresh.queue_delete, name, if_unused=True)[0] == 406
    channel.basic_cancel(tag)
    assert channel.queue_delete(name).method.message_count <= 1
    assert channel.queue_delete(name).method.message_count == 0


def test_declaring_again_is_no_error_unless_something_differs(channel: BlockingChannel) -> None:
    name = queue(channel, "again", **{"x-max-length": 10})
    assert queue(channel, "again", **{"x-max-length": 10}) == name
    code, text = failure(queue, channel, "again", **{"x-max-length": 11})
    assert code == 406
    assert "inequivalent arg 'x-max-length' for queue 'again' in vhost '/': received '11' but current is '10'" in text


REFUSED = [
    (lambda ch: ch.queue_declare("missing", passive=True), 404),
    (lambda ch: ch.exchange_declare("missing", passive=True), 404),
    (lambda ch: ch.basic_consume("missing", lambda *_: None), 404),
    (lambda ch: ch.basic_get("missing"), 404),
    (lambda ch: ch.queue_bind("missing", "amq.topic"), 404),
    (lambda ch: ch.queue_declare("amq.mine"), 403),
    (lambda ch: ch.exchange_declare("amq.mine", "direct"), 403),
    (lambda ch: ch.exchange_delete("amq.topic"), 403),
    (lambda ch: ch.exchange_declare("", "direct"), 403),
    (lambda ch: ch.exchange_declare("amq.direct", "fanout", durable=True), 406),
    (lambda ch: ch.exchange_declare("strange", "strange"), 406),
    (lambda ch: ch.queue_declare("bad-argument", arguments={"x-message-ttl": "soon"}), 406),
    (lambda ch: ch.queue_declare("bad-key", arguments={"x-dead-letter-routing-key": "k"}), 406),
    (lambda ch: ch.basic_publish("missing", "", b"x"), 404),
    (lambda ch: ch.basic_publish("amq.topic", "", b"x", BasicProperties(user_id="somebody")), 406),
    (lambda ch: ch.basic_publish("amq.topic", "", b"x", BasicProperties(reply_to="amq.rabbitmq.reply-to")), 406),
]


@pytest.mark.parametrize(("call", "code"), REFUSED)
def test_what_cannot_be_done_ends_the_channel_alone(connection: BlockingConnection, call: Any, code: int) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    assert failure(call, channel)[0] == code
    assert connection.channel().queue_declare("", exclusive=True)


def test_a_message_that_cannot_be_stored_is_told_with_confirms_and_without(
    connection: BlockingConnection, channel: BlockingChannel
) -> None:
    # A record's properties hold no such character.
    key = "a\x01b"
    with pytest.raises(exceptions.NackError):
        channel.basic_publish("amq.topic", key, b"x")
    other = connection.channel()
    other.basic_publish("amq.topic", key, b"x")
    assert failure(other.queue_declare, "", exclusive=True)[0] == 406


def test_the_largest_headers_that_are_taken_can_be_stored(channel: BlockingChannel) -> None:
    name = queue(channel)
    largest = BasicProperties(headers={f"h{number}": "y" * 1000 for number in range(18)})
    channel.basic_publish("", name, b"x", largest)
    assert get(channel, name)[1] == largest
    with pytest.raises(exceptions.ChannelClosedByBroker, match="311"):
        channel.basic_publish("", name, b"x", BasicProperties(headers={"h": "y" * 19_000}))


def test_an_unknown_tag_ends_the_channel(connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.basic_ack(7)
    assert failure(channel.queue_declare, "", exclusive=True)[0] == 406


def test_transactions_are_not_offered(connection: BlockingConnection) -> None:
    channel = connection.channel()
    with pytest.raises(exceptions.ConnectionClosedByBroker) as error:
        channel.tx_select()
    assert error.value.reply_code == 540


def test_virtual_hosts_are_apart_and_unknown_ones_refused(site: AmqpSite) -> None:
    team = connect(site, virtual_host="team")
    channel = team.channel()
    channel.queue_declare("orders", durable=True)
    channel.basic_publish("", "orders", b"ours")
    root = connect(site)
    assert failure(root.channel().queue_declare, "orders", passive=True)[0] == 404
    assert get(channel, "orders")[2] == b"ours"
    team.close()
    root.close()
    with pytest.raises(exceptions.ProbableAccessDeniedError, match=r"530.*vhost nowhere not found"):
        connect(site, virtual_host="nowhere")


def test_a_message_of_another_protocol_reaches_the_queues_that_are_bound_to_its_topic(
    site: AmqpSite, channel: BlockingChannel
) -> None:
    channel.exchange_declare("open", "topic", durable=True)
    name = queue(channel)
    channel.queue_bind(name, "open", "red")
    held = {names.TAGS: "red", names.KEYS: "k1", "colour": "crimson"}
    site.run(site.backend.send([OutgoingMessage("open", b"theirs", held)]))
    method, properties, body = get(channel, name)
    assert (body, method.exchange, method.routing_key) == (b"theirs", "open", "red")
    assert properties.headers == {"colour": "crimson"}
    assert properties.message_id == "k1"


def test_others_find_a_published_message_in_the_topic_of_its_exchange(site: AmqpSite, channel: BlockingChannel) -> None:
    channel.exchange_declare("told", "topic", durable=True)
    channel.basic_publish("told", "a.b", b"ours", BasicProperties(headers={"colour": "blue"}, message_id="m7"))
    records: list[Any] = []
    for number in range(4):
        found = site.run(site.backend.pull("", PullRequest("g", "told", number, 0)))
        records += [decode_record(record) for record in found.records]
    (record,) = records
    assert (record.body, record.tag, record.keys) == (b"ours", "a.b", ("m7",))
    assert record.properties["colour"] == "blue"


def test_delayed_exchanges_hold_messages_back(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.queue_bind(name, "later", "k")
    channel.basic_publish("later", "k", b"later", BasicProperties(headers={"x-delay": 1000}))
    channel.basic_publish("later", "k", b"now")
    assert get(channel, name)[2] == b"now"
    assert get(channel, name)[2] == b"later"


def test_what_was_declared_and_published_is_there_after_a_restart(tmp_path: Path) -> None:
    for turn in range(2):
        with running_amqp(tmp_path) as site:
            connection = connect(site)
            channel = connection.channel()
            channel.confirm_delivery()
            if turn == 0:
                channel.exchange_declare("kept", "topic", durable=True)
                channel.queue_declare("kept.q", durable=True)
                channel.queue_bind("kept.q", "kept", "a.#")
                channel.basic_publish("kept", "a.b", b"first")
            else:
                channel.basic_publish("kept", "a.c", b"second", mandatory=True)
                assert [get(channel, "kept.q")[2] for _ in range(2)] == [b"first", b"second"]
            connection.close()


def test_a_client_that_publishes_more_than_it_may_is_held_back(tmp_path: Path) -> None:
    with running_amqp(tmp_path) as site:
        shared = site.server.shared
        shared.throttle = Throttle([parse_throttle_rule("client=busy calls=20")])
        properties = {"connection_name": "busy"}
        connection = connect(site, client_properties=properties)
        channel = connection.channel()
        channel.confirm_delivery()
        name = queue(channel)
        admitted: list[float] = []
        admit = shared.throttle.admit

        def note(caller: Any, size_bytes: int, now_s: float) -> None:
            admit(caller, size_bytes, now_s)
            admitted.append(now_s)

        shared.throttle.admit = note  # type: ignore[method-assign]
        for _ in range(30):
            channel.basic_publish("", name, b"x")
        assert ready(channel, name) == 30
        # 20 at once, and each further one a twentieth of a second later.
        assert admitted[29] - admitted[0] >= 0.45
        connection.close()


def test_clients_are_told_to_wait_while_the_brokers_take_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BLOCK_S", 0.2)
    with running_amqp(tmp_path) as site:
        connection = connect(site)
        channel = connection.channel()
        channel.confirm_delivery()
        name = queue(channel)
        news: list[str] = []
        connection.add_on_connection_blocked_callback(lambda _, frame: news.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: news.append("unblocked"))

        async def refuse(*_records: Any) -> Any:
            raise StoreError("DISK_FULL", "The disk has no room.")

        with monkeypatch.context() as full:
            full.setattr(DeliveryService, "send_plain", refuse)
            with pytest.raises(exceptions.NackError):
                channel.basic_publish("", name, b"x")
        wait_for(channel, lambda: news == ["The disk has no room.", "unblocked"])
        channel.basic_publish("", name, b"x")
        assert get(channel, name)[2] == b"x"
        connection.close()
