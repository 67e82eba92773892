"""The AMQP port of a proxy whose broker is beyond sockets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amqp_ports import running_amqp
from patience import eventually_blocking

pika = pytest.importorskip("pika")


def test_a_proxy_serves_queues_of_a_broker_in_another_process(tmp_path: Path) -> None:
    with running_amqp(tmp_path, remote=True) as site:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("far", "topic", durable=True)
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("far.q", durable=True, arguments=arguments)
        channel.queue_bind("far.q", "far", "a.#")
        for number in range(5):
            channel.basic_publish("far", "a.b", b"%d" % number, mandatory=True)
        assert channel.queue_declare("far.q", passive=True).method.message_count == 5
        found: list[tuple[int, bytes]] = []
        tag = channel.basic_consume("far.q", lambda _c, method, _p, body: found.append((method.delivery_tag, body)))

        def have_come(count: int) -> bool:
            connection.process_data_events(0.01)
            return len(found) >= count

        eventually_blocking(lambda: have_come(5))
        assert [body for _, body in found] == [b"0", b"1", b"2", b"3", b"4"]
        channel.basic_ack(found[1][0], multiple=True)
        channel.basic_reject(found[2][0], requeue=False)
        channel.basic_cancel(tag)
        channel.basic_nack(0, multiple=True)
        eventually_blocking(lambda: channel.basic_get("dead", auto_ack=True)[2] == b"2")
        again: list[bytes] = []

        def has_come_again() -> bool:
            method, _, body = channel.basic_get("far.q", auto_ack=True)
            if method is not None:
                assert method.redelivered
                again.append(body)
            return len(again) == 2

        eventually_blocking(has_come_again)
        assert again == [b"3", b"4"]
        channel.basic_publish("", "far.q", b"left")
        assert channel.queue_purge("far.q").method.message_count == 1
        channel.queue_delete("far.q")
        connection.close()


def run_group_command(*words: str, nameserver: str) -> Any:
    command = [sys.executable, "-m", "millstream", "group", *words, "--nameserver", nameserver, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.process
def test_tools_show_the_groups_of_queues_with_their_lag(tmp_path: Path) -> None:
    with running_amqp(tmp_path, remote=True) as site:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("inbox", durable=True)
        for number in range(3):
            channel.basic_publish("", "inbox", b"%d" % number, mandatory=True)
        listed = run_group_command("list", nameserver=site.nameserver)
        assert [row["max_attempts"] for row in listed if row["group"] == "inbox"] == [1000]
        described = run_group_command("describe", "inbox", nameserver=site.nameserver)
        assert (described["topics"], described["lag"], described["in_flight"]) == (["%LMQ%amqp-inbox"], 3, 0)
        assert channel.basic_get("inbox")[2] == b"0"
        described = run_group_command("describe", "inbox", nameserver=site.nameserver)
        assert (described["lag"], described["in_flight"]) == (3, 1)
        [lag] = run_group_command("lag", "inbox", nameserver=site.nameserver)
        assert (lag["topic"], lag["lag"], lag["ready"]) == ("%LMQ%amqp-inbox", 3, 2)
        connection.close()
