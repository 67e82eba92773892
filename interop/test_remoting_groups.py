"""Groups of remoting clients under load: shared anew when members come, leave and die; in order under locks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interop.driver import Driver
from interop.orders import bodies_of, remoting_producer, remoting_push, send_all
from interop.server import Server

PAUSE_S = 0.02
ROUNDS = 200


@contextmanager
def load(driver: Driver, sender: str, topic: str, **fields: str) -> Iterator[list[str]]:
    """Send until the block ends; what was acknowledged."""
    sent: list[str] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            body = f"m{len(sent):05}"
            send_all(driver, sender, topic, [body], **fields)
            sent.append(body)
            stop.wait(PAUSE_S)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def test_nothing_is_lost_while_a_third_consumer_joins_and_leaves(remoting: Driver, server: Server) -> None:
    topic, group = server.topic(queues=6), server.group(remoting.name)
    sender = remoting_producer(remoting, server)
    consumers = [remoting_push(remoting, server, topic, group) for _ in range(2)]
    with load(remoting, sender, topic) as sent:
        remoting.wait_until(lambda: all(remoting.events(one) for one in consumers), 40, lambda: sent)
        third = remoting_push(remoting, server, topic, group)
        remoting.wait_until(lambda: bool(remoting.events(third)), 40, lambda: sent)
        time.sleep(2)
        remoting.order("close", third)
        time.sleep(3)
    everybody = [*consumers, third]
    remoting.wait_until(
        lambda: set(bodies_of(remoting, *everybody)) >= set(sent),
        60,
        lambda: sorted(set(sent) - set(bodies_of(remoting, *everybody))),
    )
    assert all(remoting.events(one) for one in everybody)
    for client in (*consumers, sender):
        remoting.order("close", client)


def test_ordered_messages_stay_in_order_while_a_consumer_dies(
    java: Driver, drivers: Callable[[str], Driver], server: Server, tmp_path: Path
) -> None:
    topic, group = server.topic(queues=4), server.group(java.name)
    doomed = Driver.start(java.name, tmp_path / "doomed.log")
    sender = remoting_producer(java, server)
    first = remoting_push(doomed, server, topic, group, orderly=True)
    second = remoting_push(java, server, topic, group, orderly=True)
    keys = [f"customer-{number}" for number in range(8)]
    sent: dict[str, list[str]] = {key: [] for key in keys}

    def send_round(number: int) -> None:
        for key in keys:
            body = f"{key}/{number:03}"
            java.order("send", sender, message={"topic": topic, "body": body, "group": key})
            sent[key].append(body)

    rounds = 0
    while rounds < ROUNDS and not (doomed.events(first) and java.events(second)):
        send_round(rounds)
        rounds += 1
        time.sleep(0.5)
    assert doomed.events(first)
    assert java.events(second)
    doomed.kill()
    for number in range(rounds, rounds + 10):
        send_round(number)
    seen: Callable[[], set[str]] = lambda: {*bodies_of(doomed, first), *bodies_of(java, second)}  # noqa: E731
    wanted = {body for bodies in sent.values() for body in bodies}
    # The dead consumer's locks end after a minute.
    java.wait_until(lambda: seen() >= wanted, 120, lambda: sorted(wanted - seen()))
    for key in keys:
        order = [body for body in bodies_of(java, second) if body.startswith(key + "/")]
        assert order == sorted(order), order
    java.order("close", second)
    java.order("close", sender)


def test_an_ordered_message_that_fails_holds_its_queue_up_and_then_goes_on(java: Driver, server: Server) -> None:
    topic, group = server.topic(queues=1), server.group(java.name)
    sender = remoting_producer(java, server)
    consumer = remoting_push(java, server, topic, group, orderly=True, fail={"b": 2})
    send_all(java, sender, topic, ["a", "b", "c"])
    java.wait_until(lambda: "c" in bodies_of(java, consumer), 60, lambda: bodies_of(java, consumer))
    assert bodies_of(java, consumer) == ["a", "b", "b", "b", "c"]
    java.order("close", consumer)
    java.order("close", sender)


def test_clients_of_both_protocols_share_one_group_of_work(
    java: Driver, drivers: Callable[[str], Driver], server: Server
) -> None:
    """Not one queue: remoting's queues and gRPC's messages are handed out by the same broker, so nothing is lost."""
    topic, group = server.topic(), server.group("python")
    grpc = drivers("python")
    first = f"push-{group}"
    grpc.order("open_push", first, endpoint=server.endpoint, group=group, topic=topic)
    sender = remoting_producer(java, server)
    with load(java, sender, topic) as sent:
        time.sleep(3)
        second = remoting_push(java, server, topic, group)
        time.sleep(3)
        grpc.order("close", first)
        time.sleep(3)
    seen: Callable[[], set[str]] = lambda: {*bodies_of(grpc, first), *bodies_of(java, second)}  # noqa: E731
    java.wait_until(lambda: seen() >= set(sent), 60, lambda: sorted(set(sent) - seen()))
    java.order("close", second)
    java.order("close", sender)
