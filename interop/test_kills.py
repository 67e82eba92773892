"""kill -9 of a consumer and of the server, in the middle of the traffic of every official client."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from interop.driver import ClientError, Driver
from interop.orders import producer, push
from interop.server import Server
from millstream.server.child import ServerProcess


def test_what_a_killed_consumer_held_goes_to_another(
    driver: Driver, drivers: Callable[[str], Driver], server: Server, tmp_path: Path
) -> None:
    topic, group = server.topic(), server.group(driver.name)
    doomed = Driver.start(driver.name, tmp_path / "doomed.log")
    everything = {f"m{number}": 99 for number in range(40)}
    push(doomed, server, topic, group, fail=everything)
    sender = producer(driver, server, topic)
    for body in everything:
        driver.order("send", sender, message={"topic": topic, "body": body})
    doomed.wait_for(f"push-{group}", 5)
    doomed.kill()
    consumer = push(driver, server, topic, group)
    driver.wait_until(
        lambda: {message["body"] for message in driver.events(consumer)} == set(everything),
        90,
        lambda: set(everything) - {message["body"] for message in driver.events(consumer)},
    )
    driver.order("close", consumer)
    driver.order("close", sender)


def test_a_killed_server_loses_nothing_that_it_acknowledged(driver: Driver, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as process:
        first = Server.of(process)
        topic, group = first.topic(), first.group(driver.name)
        sender = producer(driver, first, topic)
        acknowledged: list[str] = []

        def send_until_it_fails() -> None:
            for number in range(100_000):
                try:
                    driver.order("send", sender, message={"topic": topic, "body": f"m{number}"})
                except (ClientError, AssertionError):
                    return
                acknowledged.append(f"m{number}")

        sending = threading.Thread(target=send_until_it_fails)
        sending.start()
        driver.wait_until(lambda: len(acknowledged) >= 100, 60, lambda: len(acknowledged))
        process.kill()
        sending.join(60)
    with ServerProcess(tmp_path / "data") as process:
        second = Server.of(process)
        consumer = push(driver, second, topic, group)
        driver.wait_until(
            lambda: {message["body"] for message in driver.events(consumer)} >= set(acknowledged),
            60,
            lambda: set(acknowledged) - {message["body"] for message in driver.events(consumer)},
        )
        counted = Counter(message["body"] for message in driver.events(consumer))
        assert {body for body, times in counted.items() if times > 1} <= {f"m{len(acknowledged)}"}
        driver.order("close", consumer)
