"""The official Python client's transactions: commit, rollback, questions to silent producers, a kill in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from composition import Running, as_a_program
from official import configuration, drain, message, simple_consumer, started
from rocketmq import Message, Producer, TransactionChecker, TransactionResolution

pytestmark = pytest.mark.official

Names = Callable[[str], str]


class Checker(TransactionChecker):
    """Says what it was told to say, and keeps what it was asked."""

    def __init__(self, *answers: TransactionResolution) -> None:
        self.asked: list[tuple[bytes, float]] = []
        self._answers = list(answers)
        self._more = threading.Condition()

    def check(self, message: Message) -> TransactionResolution:
        with self._more:
            self.asked.append((message.body, time.monotonic()))
            self._more.notify_all()
            return self._answers.pop(0) if self._answers else TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED

    def wait_for(self, amount: int, timeout_s: float = 30) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.asked) >= amount, timeout_s), self.asked


@contextmanager
def transactional(port: int, topic: str, checker: Checker) -> Iterator[Any]:
    with started(Producer(configuration(port), (topic,), checker=checker)) as sender:
        yield sender


def begin(sender: Any, topic: str, body: bytes) -> Any:
    transaction = sender.begin_transaction()
    receipt = sender.send(message(topic, body), transaction)
    assert receipt.transaction_id
    return transaction


def test_what_is_committed_comes_and_what_is_rolled_back_never_does(anywhere: Running, new_name: Names) -> None:
    topic = new_name("tx")
    anywhere.create_topic(topic, "TRANSACTION")
    with transactional(anywhere.port, topic, Checker()) as sender:
        committed, dropped = begin(sender, topic, b"comes"), begin(sender, topic, b"dropped")
        with simple_consumer(anywhere.port, new_name("group"), topic, await_s=1) as consumer:
            assert consumer.receive(32, 10) == []
            dropped.rollback()
            committed.commit()
            committed.commit()
            (found,) = drain(consumer, 1)
            assert found.body == b"comes"
            assert consumer.receive(32, 10) == []
        with pytest.raises(Exception, match="committed"):
            committed.rollback()


def test_a_producer_that_ends_nothing_is_asked_and_its_answer_counts(program: Running, new_name: Names) -> None:
    topic = new_name("tx")
    program.create_topic(topic, "TRANSACTION")
    checker = Checker(TransactionResolution.COMMIT)
    with (
        transactional(program.port, topic, checker) as sender,
        simple_consumer(program.port, new_name("group"), topic, await_s=1) as consumer,
    ):
        sent_s = time.monotonic()
        begin(sender, topic, b"orphan")
        (found,) = drain(consumer, 1)
        assert found.body == b"orphan"
        (asked,) = checker.asked
        assert asked[0] == b"orphan"
        assert asked[1] - sent_s >= 5.9


def test_over_a_kill_between_send_and_end_the_transaction_stays_open_and_can_end(tmp_path: Path) -> None:
    with as_a_program(tmp_path) as running:
        running.create_topic("tx", "TRANSACTION")
        port = running.port
        assert running.kill is not None
        with transactional(port, "tx", Checker()) as sender:
            ended = begin(sender, "tx", b"ended before")
            ended.commit()
            committed = begin(sender, "tx", b"committed after")
            dropped = begin(sender, "tx", b"dropped after")
            running.kill()
            with as_a_program(tmp_path, port) as again:
                retry(committed.commit)
                retry(dropped.rollback)
                retry(ended.commit)
                with simple_consumer(again.port, "group", "tx", await_s=1) as consumer:
                    assert sorted(one.body for one in drain(consumer, 2)) == [b"committed after", b"ended before"]
                    assert consumer.receive(32, 10) == []


def test_over_a_kill_a_silent_producer_is_asked_by_the_next_server(tmp_path: Path) -> None:
    with as_a_program(tmp_path) as running:
        running.create_topic("tx", "TRANSACTION")
        port = running.port
        assert running.kill is not None
        with transactional(port, "tx", Checker()) as sender:
            begin(sender, "tx", b"orphan")
            running.kill()
    checker = Checker(TransactionResolution.ROLLBACK)
    with as_a_program(tmp_path, port) as again, transactional(again.port, "tx", checker):
        checker.wait_for(1)
        assert checker.asked[0][0] == b"orphan"


def retry(act: Callable[[], object], timeout_s: float = 20) -> None:
    """The client's channel needs a moment to find the new server."""
    give_up_s = time.monotonic() + timeout_s
    while True:
        try:
            act()
            return
        except Exception:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.2)
