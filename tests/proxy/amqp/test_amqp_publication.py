"""Messages that are stored without a closer look are those that the brokers would have admitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_ports import AmqpSite, running_amqp
from millstream.broker.broker import Broker
from millstream.model.message import StoredMessage
from millstream.protocol.record import decode_record
from millstream.proxy.amqp import publication
from millstream.store.consume_queue import IndexEntry

pika = pytest.importorskip("pika")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[AmqpSite]:
    with running_amqp(tmp_path) as running:
        yield running


def stored(broker: Broker, topic: str) -> list[StoredMessage]:
    store = broker.delivery.popper.reader.store
    queues = broker.topics.get(topic).queues
    entries: list[IndexEntry] = [one for queue_id in range(queues) for one in store.entries(topic, queue_id, 0, 9)]
    return [decode_record(store.read(entry)) for entry in sorted(entries, key=lambda one: one.log_offset)]


@pytest.mark.parametrize(
    "properties",
    [
        pika.BasicProperties(),
        pika.BasicProperties(content_type="text/plain", delivery_mode=2, message_id="m-1", headers={"a": "b", "n": 5}),
        pika.BasicProperties(message_id="ü", headers={"INNER_MULTI_DISPATCH": "%LMQ%x", "KEYS": "k"}, priority=3),
    ],
)
@pytest.mark.parametrize("key", ["q", "order|new", ""])
def test_a_plain_record_has_the_properties_of_one_that_the_broker_looks_at(
    site: AmqpSite, monkeypatch: pytest.MonkeyPatch, properties: pika.BasicProperties, key: str
) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=site.port))
    channel = connection.channel()
    channel.exchange_declare("shop", "fanout")
    channel.queue_declare("q")
    channel.queue_bind("q", "shop")
    channel.confirm_delivery()
    channel.basic_publish("shop", key, b"one", properties)
    monkeypatch.setattr(publication, "_ordinary_of", lambda *_: None)
    channel.basic_publish("shop", key, b"two", properties)
    one, two = site.call(lambda: stored(site.broker, "shop"))
    unlike = ("UNIQ_KEY", "INNER_MULTI_QUEUE_OFFSET")
    assert (one.body, two.body) == (b"one", b"two")
    assert list(one.properties) == list(two.properties)
    assert {name: value for name, value in one.properties.items() if name not in unlike} == {
        name: value for name, value in two.properties.items() if name not in unlike
    }
    assert one.properties["UNIQ_KEY"] != two.properties["UNIQ_KEY"]
    connection.close()
