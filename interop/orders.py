"""Short ways to give orders to a driver."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

from interop.driver import Driver
from interop.server import Server

_numbers = itertools.count()
TOPIC_TIMEOUT_S = 20.0
"""How long a topic that the server makes itself may be missing."""


def simple(driver: Driver, server: Server, topic: str, group: str, **filters: str) -> str:
    name = f"simple-{group}"
    driver.order("open_simple", name, endpoint=server.endpoint, group=group, topic=topic, await_s=3, **filters)
    return name


def producer(driver: Driver, server: Server, topic: str, **fields: Any) -> str:
    name = f"producer-{topic}"
    driver.order("open_producer", name, endpoint=server.endpoint, topics=[topic], **fields)
    return name


def push(driver: Driver, server: Server, topic: str, group: str, **fields: Any) -> str:
    name = f"push-{group}"
    driver.order("open_push", name, endpoint=server.endpoint, group=group, topic=topic, **fields)
    return name


def remoting_producer(driver: Driver, server: Server, **fields: Any) -> str:
    name = f"producer-{next(_numbers)}"
    driver.order("open_producer", name, endpoint=server.remoting, **fields)
    return name


def remoting_push(driver: Driver, server: Server, topic: str, group: str, **fields: Any) -> str:
    name = f"push-{next(_numbers)}"
    driver.order("open_push", name, endpoint=server.remoting, group=group, topic=topic, **fields)
    return name


def send_all(driver: Driver, sender: str, topic: str, bodies: Iterable[str], **fields: Any) -> None:
    for body in bodies:
        driver.order("send", sender, message={"topic": topic, "body": body, **fields})


def bodies_of(driver: Driver, *consumers: str) -> list[str]:
    """The bodies of all that consumers were given, in the order of their events."""
    return [message["body"] for consumer in consumers for message in driver.events(consumer)]


def drain(driver: Driver, consumer: str, amount: int, *, ack: bool = True, invisible_s: int = 30) -> list[Any]:
    found: list[Any] = []
    for _ in range(10):
        batch = driver.order("receive", consumer, max=16, invisible_s=invisible_s)["messages"]
        for message in batch:
            if ack:
                driver.order("ack", consumer, id_of_message=message["id"])
        found += batch
        if len(found) >= amount:
            break
    return found


def wait_for_topic(server: Server, name: str) -> None:
    """Wait until the server has made a topic itself, as for dead letters."""
    give_up_s = time.monotonic() + TOPIC_TIMEOUT_S
    while name not in server.topics():
        assert time.monotonic() < give_up_s, name
        time.sleep(0.1)
