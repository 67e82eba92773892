"""Transactional messages: in their topic once or never, whoever says so when, over crashes, and asked about in time."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from broker_bench import Bench, open_bench, running, settle

from millstream.broker.broker import Broker
from millstream.broker.delivery import transactions
from millstream.broker.delivery.half_messages import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import MessageRefused, NameRefused, Refused, StoreError
from millstream.model.message import OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.operations import Resolution, SendReceipt
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from patience import eventually

COMMIT, ROLLBACK, UNKNOWN = Resolution.COMMIT, Resolution.ROLLBACK, Resolution.UNKNOWN
CHECKS_MS = [6_000, *[30_000] * 14]


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "POLL_S", 0.002)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "data") as opened:
        opened.broker.topics.create(TopicConfig("tx", MessageType.TRANSACTION))
        yield opened


def half(body: str, topic: str = "tx", **held: str) -> OutgoingMessage:
    return OutgoingMessage(topic, body.encode(), {"UNIQ_KEY": f"ID-{body}", "TRAN_MSG": "true", **held}, queue_id=1)


async def send(broker: Broker, body: str, topic: str = "tx", **held: str) -> SendReceipt:
    return (await broker.delivery.send([half(body, topic, **held)]))[0]


async def end(broker: Broker, body: str, resolution: Resolution, topic: str = "tx") -> None:
    await broker.delivery.end_transaction(topic, f"ID-{body}", resolution)


def stored(broker: Broker, topic: str = "tx", queue_id: int = 1) -> list[StoredMessage]:
    entries = broker.maintenance.store.entries(topic, queue_id, 0, 1000)
    return [decode_record(broker.maintenance.store.read(entry)) for entry in entries]


def texts(broker: Broker, topic: str = "tx", queue_id: int = 1) -> list[str]:
    return [message.body.decode() for message in stored(broker, topic, queue_id)]


class Producer:
    """Is asked, and keeps what it was asked; `is_there` says whether it takes the question."""

    def __init__(self, broker: Broker) -> None:
        self.asked: list[RecoverOrphanedTransaction] = []
        self.is_there = True
        broker.delivery.watch_transactions(self.ask)

    def ask(self, question: RecoverOrphanedTransaction) -> bool:
        if self.is_there:
            self.asked.append(question)
        return self.is_there

    @property
    def bodies(self) -> list[str]:
        return [question.message.body.decode() for question in self.asked]


async def test_a_committed_message_is_what_was_sent_and_a_rolled_back_one_never_comes(bench: Bench) -> None:
    receipt = await send(bench.broker, "a", KEYS="k", TAGS="t", mine="x")
    await send(bench.broker, "b")
    assert await bench.pop(topic="tx") == []
    await end(bench.broker, "b", ROLLBACK)
    await end(bench.broker, "a", COMMIT)
    (message,) = stored(bench.broker)
    assert (message.body, message.tag, message.keys, message.message_id) == (b"a", "t", ("k",), "ID-a")
    assert message.user_properties == {"mine": "x"}
    assert message.system_flag & SystemFlag.TRANSACTION_ROLLBACK == SystemFlag.TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == receipt.log_offset
    assert not {"REAL_TOPIC", "REAL_QID", "TRAN_MSG"} & message.properties.keys()
    (popped,) = await bench.pop(topic="tx")
    assert popped.message.body == b"a"
    assert bench.broker.maintenance.open_transactions == 0


async def test_the_marks_are_rocketmqs(bench: Bench) -> None:
    for body in "abc":
        await send(bench.broker, body)
    await end(bench.broker, "b", COMMIT)
    await end(bench.broker, "a", ROLLBACK)
    halves, marks = stored(bench.broker, HALF_TOPIC, 0), stored(bench.broker, OP_TOPIC, 0)
    assert [(each.properties["REAL_TOPIC"], each.properties["REAL_QID"]) for each in halves] == [("tx", "1")] * 3
    assert [(each.tag, each.body) for each in marks] == [("d", b"1"), ("d", b"0")]


async def test_a_topic_that_takes_all_types_takes_transactions_and_one_of_another_type_does_not(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("all", MessageType.MIXED))
    await send(bench.broker, "a", "all", __SHARDINGKEY="g")
    await bench.broker.delivery.send([OutgoingMessage("all", b"plain", {"UNIQ_KEY": "p"}, queue_id=1)])
    await end(bench.broker, "a", COMMIT, "all")
    assert texts(bench.broker, "all") == ["plain", "a"]
    with pytest.raises(MessageRefused) as refused:
        await send(bench.broker, "a", "t")
    assert refused.value.name == "MESSAGE_TYPE_MISMATCH"
    with pytest.raises(MessageRefused) as refused:
        await bench.broker.delivery.send([OutgoingMessage("tx", b"plain", {"UNIQ_KEY": "p"})])
    assert refused.value.name == "MESSAGE_TYPE_MISMATCH"


@pytest.mark.parametrize(
    ("held", "name"),
    [
        ({"UNIQ_KEY": " "}, "ILLEGAL_MESSAGE_ID"),
        ({"TIMER_DELAY_SEC": "5"}, "MESSAGE_TYPE_MISMATCH"),
        ({"DELAY": "3"}, "MESSAGE_TYPE_MISMATCH"),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "3601"}, "ILLEGAL_RECOVERY_TIME"),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, "ILLEGAL_RECOVERY_TIME"),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "9" * 5000}, "ILLEGAL_RECOVERY_TIME"),
    ],
)
async def test_transactions_that_cannot_end_well_are_refused(bench: Bench, held: dict[str, str], name: str) -> None:
    with pytest.raises(MessageRefused) as refused:
        await send(bench.broker, "a", **held)
    assert refused.value.name == name


async def test_the_same_end_again_is_no_error_and_another_one_is(bench: Bench) -> None:
    for body, first, second in (("a", COMMIT, ROLLBACK), ("b", ROLLBACK, COMMIT)):
        await send(bench.broker, body)
        await end(bench.broker, body, UNKNOWN)
        assert bench.broker.maintenance.open_transactions == 1, "who does not know ends nothing"
        await end(bench.broker, body, first)
        await end(bench.broker, body, first)
        await end(bench.broker, body, UNKNOWN)
        with pytest.raises(MessageRefused) as refused:
            await end(bench.broker, body, second)
        assert refused.value.name == "TRANSACTION_ENDED"
    assert texts(bench.broker) == ["a"]


async def test_ends_at_the_same_time_agree(bench: Bench) -> None:
    await send(bench.broker, "a")
    ends = [COMMIT, ROLLBACK, COMMIT, ROLLBACK]
    answers = await asyncio.gather(*(end(bench.broker, "a", each) for each in ends), return_exceptions=True)
    assert [answer is None for answer in answers] == [True, False, True, False]
    assert texts(bench.broker) == ["a"]


async def test_an_unknown_transaction_and_a_wrong_topic_are_said(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("other", MessageType.TRANSACTION))
    await send(bench.broker, "a")
    for topic, body in (("tx", "none"), ("other", "a"), ("tx", "")):
        for resolution in Resolution:
            with pytest.raises(MessageRefused) as refused:
                await end(bench.broker, body, resolution, topic)
            assert refused.value.name == "TRANSACTION_NOT_FOUND"
    assert bench.broker.maintenance.open_transactions == 1


async def test_a_message_sent_twice_under_its_id_comes_once(bench: Bench) -> None:
    """As when the answer to the first send was lost."""
    for _ in range(3):
        await send(bench.broker, "a")
    await end(bench.broker, "a", COMMIT)
    await end(bench.broker, "a", COMMIT)
    assert texts(bench.broker) == ["a"]
    assert bench.broker.maintenance.open_transactions == 0


async def test_an_end_whose_caller_has_gone_is_carried_out(bench: Bench) -> None:
    await send(bench.broker, "a")
    ending = asyncio.create_task(end(bench.broker, "a", COMMIT))
    await asyncio.sleep(0)
    ending.cancel()
    await settle()
    assert ending.cancelled()
    await end(bench.broker, "a", COMMIT)
    assert texts(bench.broker) == ["a"]


async def test_an_end_that_could_not_be_stored_can_be_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(bench.broker, "a")
    with monkeypatch.context() as patched:

        def refuse(*_: object) -> None:
            raise StoreError("DISK_FULL", "No room.")

        patched.setattr(bench.broker.maintenance.store, "put", refuse)
        with pytest.raises(StoreError):
            await end(bench.broker, "a", COMMIT)
    await end(bench.broker, "a", ROLLBACK)
    assert texts(bench.broker) == []


async def test_what_the_disk_confirms_late_is_not_stored_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(bench.broker, "a")
    append = bench.broker._appender.append_many

    async def late(records: object) -> None:
        await append(records)  # type: ignore[arg-type]
        raise StoreError("FLUSH_TIMEOUT", "late")

    with monkeypatch.context() as patched:
        patched.setattr(bench.broker._appender, "append_many", lambda records: asyncio.ensure_future(late(records)))
        with pytest.raises(StoreError):
            await end(bench.broker, "a", COMMIT)
    await end(bench.broker, "a", COMMIT)
    assert texts(bench.broker) == ["a"]


async def test_too_many_pending_transactions_are_a_refusal_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MAX_PENDING", 2)
    await send(bench.broker, "a")
    await send(bench.broker, "b")
    await eventually(lambda: bench.broker.maintenance.open_transactions == 2)
    with pytest.raises(Refused) as refused:
        await send(bench.broker, "c")
    assert refused.value.name == "TOO_MANY_REQUESTS"
    await end(bench.broker, "a", COMMIT)
    await send(bench.broker, "c")


async def test_a_silent_producer_is_asked_after_6_s_then_every_30_s_15_times_in_all(bench: Bench) -> None:
    producer = Producer(bench.broker)
    await send(bench.broker, "a", mine="x")
    await settle()
    for number, wait_ms in enumerate(CHECKS_MS):
        bench.clock.advance_ms(wait_ms - 1)
        await asyncio.sleep(0.02)
        assert len(producer.asked) == number, "not before its time"
        bench.clock.advance_ms(1)
        await eventually(lambda wanted=number + 1: len(producer.asked) == wanted)  # type: ignore[misc]
    question = producer.asked[0]
    assert (question.transaction_id, question.message.topic) == ("ID-a", "tx")
    assert (question.message.body, question.message.user_properties) == (b"a", {"mine": "x"})
    bench.clock.advance_ms(30_000)
    await eventually(lambda: bench.broker.maintenance.open_transactions == 0)
    (kept,) = stored(bench.broker, GIVEN_UP_TOPIC, 0)
    assert (kept.body, kept.properties["REAL_TOPIC"], kept.message_id) == (b"a", "tx", "ID-a")
    assert len(await bench.pop(topic=GIVEN_UP_TOPIC)) == 1, "people can read what was given up"
    with pytest.raises(MessageRefused, match="given up"):
        await end(bench.broker, "a", COMMIT)
    assert texts(bench.broker) == []


async def test_a_producer_may_ask_for_another_time_before_the_first_question(bench: Bench) -> None:
    producer = Producer(bench.broker)
    await send(bench.broker, "later", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    await send(bench.broker, "sooner", CHECK_IMMUNITY_TIME_IN_SECONDS="2")
    await send(bench.broker, "usual", CHECK_IMMUNITY_TIME_IN_SECONDS="0")
    await settle()
    for wait_ms, wanted in ((2000, ["sooner"]), (4000, ["sooner", "usual"])):
        bench.clock.advance_ms(wait_ms)
        await eventually(lambda expected=wanted: producer.bodies == expected)  # type: ignore[misc]
    bench.clock.advance_ms(54_000)
    await eventually(lambda: "later" in producer.bodies)


async def test_an_answer_to_the_question_ends_it(bench: Bench) -> None:
    producer = Producer(bench.broker)
    await send(bench.broker, "a")
    await settle()
    bench.clock.advance_ms(6000)
    await eventually(lambda: len(producer.asked) == 1)
    await end(bench.broker, "a", COMMIT)
    bench.clock.advance_ms(60_000)
    await asyncio.sleep(0.02)
    assert (len(producer.asked), texts(bench.broker)) == (1, ["a"])


async def test_while_no_producer_is_there_no_question_counts_until_the_message_is_too_old(bench: Bench) -> None:
    producer = Producer(bench.broker)
    producer.is_there = False
    await send(bench.broker, "a")
    await settle()
    for _ in range(40):
        bench.clock.advance_ms(30_000)
        await asyncio.sleep(0.005)
    assert bench.broker.maintenance.open_transactions == 1
    producer.is_there = True
    bench.clock.advance_ms(30_000)
    await eventually(lambda: len(producer.asked) == 1)
    producer.is_there = False
    bench.clock.advance_ms(72 * 3_600_000)
    await eventually(lambda: bench.broker.maintenance.open_transactions == 0)
    assert texts(bench.broker, GIVEN_UP_TOPIC, 0) == ["a"]


async def test_those_that_can_reach_producers_are_asked_in_turn(bench: Bench) -> None:
    producers = [Producer(bench.broker), Producer(bench.broker), Producer(bench.broker)]
    producers[1].is_there = False
    for number in range(6):
        await send(bench.broker, str(number))
    await settle()
    bench.clock.advance_ms(6000)
    await eventually(lambda: sum(len(producer.asked) for producer in producers) == 6)
    assert min(len(producers[0].asked), len(producers[2].asked)) >= 2


async def test_a_transaction_whose_topic_is_deleted_is_let_go(bench: Bench) -> None:
    await send(bench.broker, "a")
    await settle()
    bench.broker.topics.delete("tx")
    with pytest.raises(NameRefused):
        await end(bench.broker, "a", COMMIT)
    bench.clock.advance_ms(6000)
    await eventually(lambda: bench.broker.maintenance.open_transactions == 0)


async def test_a_damaged_half_message_ends_nothing_else(bench: Bench, damage: Callable[[int], None]) -> None:
    await send(bench.broker, "a")
    await send(bench.broker, "b")
    await settle()
    damage(0)
    with pytest.raises(MessageRefused):
        await end(bench.broker, "a", COMMIT)
    producer = Producer(bench.broker)
    bench.clock.advance_ms(6000)
    await eventually(lambda: producer.bodies == ["b"])
    assert bench.broker.maintenance.open_transactions == 1


async def test_retention_leaves_what_is_pending(bench: Bench) -> None:
    receipts = [await send(bench.broker, body) for body in "ab"]
    await settle()
    pin = bench.broker._transactions._oldest_log_offset
    assert pin in bench.broker.maintenance.store.pins
    assert pin() == receipts[0].log_offset
    await end(bench.broker, "a", COMMIT)
    assert pin() == receipts[1].log_offset
    await end(bench.broker, "b", COMMIT)
    assert pin() > bench.broker.maintenance.store.written_log_offset


async def test_no_client_can_end_a_transaction_by_a_message_that_looks_like_an_end(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        bench.broker.topics.create(TopicConfig("tx", MessageType.TRANSACTION))
        await send(bench.broker, "a")
        fake = {"UNIQ_KEY": "f", "TRAN_PREPARED_QUEUE_OFFSET": "0", "__TRANSACTION_OUTCOME": "rolled back"}
        await bench.broker.delivery.send([OutgoingMessage("t", b"fake", fake, queue_id=0)])
        flagged = OutgoingMessage("tx", b"fake", fake, queue_id=1, system_flag=SystemFlag.TRANSACTION_COMMIT)
        await bench.broker.delivery.send([flagged])
        with pytest.raises(NameRefused):
            await bench.broker.delivery.send([OutgoingMessage(OP_TOPIC, b"0", fake)])
    async with running(tmp_path, clock=bench.clock) as broker:
        assert broker.maintenance.open_transactions == 2
        await end(broker, "a", COMMIT)
        assert texts(broker) == ["a"]


@pytest.mark.parametrize("forgets", [False, True], ids=["with its document", "without its document"])
async def test_over_a_crash_each_transaction_is_pending_or_ended_as_before(tmp_path: Path, forgets: bool) -> None:
    """The copy is what kill -9 leaves; the document is as of an earlier moment, or gone."""
    async with open_bench(tmp_path / "data") as bench:
        broker = bench.broker
        broker.topics.create(TopicConfig("tx", MessageType.TRANSACTION))
        for number in range(8):
            await send(broker, str(number))
        await end(broker, "0", COMMIT)
        await end(broker, "1", ROLLBACK)
        await broker._transactions._save(broker._transactions._settled_log_offset)
        await end(broker, "2", COMMIT)
        await end(broker, "3", ROLLBACK)
        await send(broker, "8")
        await asyncio.to_thread(broker.maintenance.store.flush_log)
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    if forgets:
        for document in (tmp_path / "crashed" / "config").glob("transactions*"):
            document.unlink()
    async with running(tmp_path / "crashed", clock=bench.clock) as broker:
        assert broker.maintenance.open_transactions == 5
        assert texts(broker) == ["0", "2"]
        await end(broker, "2", COMMIT)
        await end(broker, "3", ROLLBACK)
        await end(broker, "4", COMMIT)
        await end(broker, "8", COMMIT)
        assert texts(broker) == ["0", "2", "4", "8"]


async def test_a_start_reads_the_log_from_the_last_save_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_bench(tmp_path / "data") as bench:
        bench.broker.topics.create(TopicConfig("tx", MessageType.TRANSACTION))
        await send(bench.broker, "old")
        await settle()
        await bench.send(*map(str, range(100)))
        await bench.broker._transactions._save(saved_at := bench.broker.maintenance.store.visible_log_offset)
        await bench.send("later")
        await asyncio.to_thread(bench.broker.maintenance.store.flush_log)
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    starts: list[int] = []
    marked_messages = transactions.marked_messages

    def noted(store: object, start: int, name: str) -> object:
        starts.append(start)
        return marked_messages(store, start, name)  # type: ignore[arg-type]

    monkeypatch.setattr(transactions, "marked_messages", noted)
    async with running(tmp_path / "crashed", clock=bench.clock) as broker:
        assert broker.maintenance.open_transactions == 1
        assert starts == [saved_at]


async def test_a_commit_whose_mark_was_cut_off_is_marked_again_and_not_repeated(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "data") as bench:
        broker = bench.broker
        broker.topics.create(TopicConfig("tx", MessageType.TRANSACTION))
        await send(broker, "a")
        await end(broker, "a", COMMIT)
        (cut,) = (each.log_offset for each in stored(broker, OP_TOPIC, 0))
        await asyncio.to_thread(broker.maintenance.store.flush_log)
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    crash_at(tmp_path / "crashed", cut)
    for _ in range(2):
        async with running(tmp_path / "crashed", clock=bench.clock) as broker:
            assert broker.maintenance.open_transactions == 0
            assert texts(broker) == ["a"]
            assert len(stored(broker, OP_TOPIC, 0)) == 1
            await end(broker, "a", COMMIT)
            with pytest.raises(MessageRefused, match="was committed"):
                await end(broker, "a", ROLLBACK)


def crash_at(directory: Path, log_offset: int) -> None:
    """Cut the log there, as a crash within the last write does, with no later file that knows more."""
    (segment,) = (directory / "store" / "commitlog").iterdir()
    content = segment.read_bytes()
    segment.write_bytes(content[:log_offset] + bytes(len(content) - log_offset))
    for name in ("flushed", "checkpoint", "checkpoint.bak"):
        (directory / "store" / name).unlink(missing_ok=True)
