"""Two proxies of one broker: what a client declares at one of them is there at the other, and so are its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amqp_ports import running_amqp
from millstream.proxy.amqp.server import AmqpServer
from millstream.proxy.processor import Processor
from patience import eventually_blocking

pika = pytest.importorskip("pika")


def connect(port: int) -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))


def test_clients_go_on_at_another_proxy(tmp_path: Path) -> None:
    with running_amqp(tmp_path) as site:
        second = AmqpServer(Processor(site.backend), site.backend, "127.0.0.1", 0)
        port = site.run(second.start())
        there = connect(port).channel()
        there.confirm_delivery()
        here = connect(site.port).channel()
        here.exchange_declare("both", "fanout", durable=True)
        here.queue_declare("both.q", durable=True)
        here.queue_bind("both.q", "both")

        def is_routed() -> bool:
            return bool(second.shared.topology.hosts["/"].route("both", "", {}))

        eventually_blocking(is_routed)
        for number in range(3):
            there.basic_publish("both", "", b"%d" % number, mandatory=True)
        found: list[bytes] = []
        here.basic_consume("both.q", lambda _c, _m, _p, body: found.append(body))

        def have_come() -> bool:
            here.connection.process_data_events(0.01)
            return len(found) == 3

        eventually_blocking(have_come)
        # The first proxy stops; what its client had not acknowledged is there for others at once.
        site.run(site.server.close())
        again = [there.basic_get("both.q", auto_ack=True) for _ in range(3)]
        assert [(method.redelivered, body) for method, _, body in again] == [(True, b"0"), (True, b"1"), (True, b"2")]
        there.queue_delete("both.q")
        site.run(second.close())


def test_a_queue_deletes_itself_with_its_last_consumer_at_any_proxy(tmp_path: Path) -> None:
    with running_amqp(tmp_path) as site:
        second = AmqpServer(Processor(site.backend), site.backend, "127.0.0.1", 0)
        there = connect(site.run(second.start())).channel()
        here = connect(site.port).channel()
        here.queue_declare("auto.q", auto_delete=True)
        hosts = [server.shared.topology.hosts["/"] for server in (site.server, second)]
        eventually_blocking(lambda: all("auto.q" in host.queues for host in hosts))
        tag = here.basic_consume("auto.q", lambda *_: None)
        other = there.basic_consume("auto.q", lambda *_: None)
        eventually_blocking(lambda: site.server.shared.topology.is_consumed_elsewhere("/", "auto.q"))
        here.basic_cancel(tag)
        eventually_blocking(lambda: not second.shared.topology.is_consumed_elsewhere("/", "auto.q"))
        assert all("auto.q" in host.queues for host in hosts)
        there.basic_cancel(other)
        eventually_blocking(lambda: not any("auto.q" in host.queues for host in hosts))
        site.run(second.close())
