"""Dead letters: told with their cause, and sent again once each."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from broker_bench import MEMORY, Bench, attempts, bodies, open_bench, settle
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from example_counts import scaled
from millstream.broker.delivery import redrive as redrive_module
from millstream.model.clock import ManualClock
from millstream.model.errors import StoreError
from millstream.model.group import GroupConfig
from millstream.model.lite import LiteAction, LiteSync
from millstream.model.operations import AckRequest, DeadLetterQuery, PoppedMessage, RedriveResult, Resolution
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.appender import Appender
from millstream.store.manifest import StoreManifest


async def bury(bench: Bench, *bodies: str, topic: str = "t", **held: str) -> None:
    """Messages that the group `g` gave up."""
    for number, body in enumerate(bodies):
        await bench.send(body, topic=topic, **{"UNIQ_KEY": f"id-{body}-{number}", **held})
        (popped,) = await bench.pop(topic=topic)
        await bench.broker.delivery.move_to_dead_letter(AckRequest("g", topic, popped.handle))


async def redrive(bench: Bench, target: str | None = None, **query: Any) -> RedriveResult:
    return await bench.broker.delivery.redrive(DeadLetterQuery("g", **query), target)


def waiting(bench: Bench) -> list[str]:
    page = bench.broker.delivery.dead_letters(DeadLetterQuery("g", only_waiting=True))
    return [letter.origin_message_id for letter in page.letters]


async def test_a_dead_letter_tells_where_it_comes_from_when_and_why_it_died(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("g", max_attempts=2))
    await bench.send("poison", UNIQ_KEY="id-1")
    for _ in range(2):
        await bench.pop(invisible_ms=10)
        bench.clock.advance_ms(10)
    assert await bench.pop() == []
    await bury(bench, "given-up")
    page = bench.broker.delivery.dead_letters(DeadLetterQuery("g"))
    first, second = page.letters
    assert (first.origin_topic, first.origin_message_id, first.message_id) == ("t", "id-1", "id-1")
    assert (first.attempts, first.reason, first.size_bytes) == (2, "attempts used up", 6)
    assert first.dead_ms == bench.clock.now_ms()
    assert (second.attempts, second.reason) == (1, "given up by the consumer")
    assert (page.next_offset, page.end_offset) == (2, 2)


async def test_a_group_without_dead_letters_has_an_empty_page(bench: Bench) -> None:
    page = bench.broker.delivery.dead_letters(DeadLetterQuery("nobody"))
    assert (page.letters, page.end_offset) == ((), 0)
    assert (await redrive(bench)).results == ()


async def test_a_redriven_message_is_as_it_was_and_delivered_as_if_for_the_first_time(bench: Bench) -> None:
    await bury(bench, "a", TAGS="red", KEYS="k1 k2", colour="blue")
    result = await redrive(bench)
    assert [(one.topic, one.message_id, one.refusal) for one in result.results] == [("t", "id-a-0", "")]
    (again,) = await bench.pop()
    message = again.message
    assert (message.body, message.message_id, message.tag, message.keys) == (b"a", "id-a-0", "red", ("k1", "k2"))
    assert message.user_properties == {"colour": "blue"}
    assert "DLQ_ORIGIN_TOPIC" not in message.properties
    assert (again.delivery_attempt, message.reconsume_times) == (1, 0)


async def test_each_dead_letter_is_sent_once_however_often_it_is_asked_for(bench: Bench) -> None:
    await bury(bench, "a", "b")
    first, second = await asyncio.gather(redrive(bench), redrive(bench))
    assert len(first.results) + len(second.results) == 2
    assert (await redrive(bench)).results == ()
    assert sorted(bodies(await bench.pop())) == ["a", "b"]
    assert waiting(bench) == []
    assert all(letter.is_redriven for letter in bench.broker.delivery.dead_letters(DeadLetterQuery("g")).letters)


async def test_only_what_was_asked_for_is_sent_by_id_and_by_time(bench: Bench) -> None:
    await bury(bench, "a", "b")
    bench.clock.advance_ms(1000)
    later_ms = bench.clock.now_ms()
    await bury(bench, "c")
    await redrive(bench, message_ids=frozenset(["id-b-1"]))
    assert bodies(await bench.pop()) == ["b"]
    await redrive(bench, since_ms=later_ms)
    assert bodies(await bench.pop()) == ["c"]
    assert waiting(bench) == ["id-a-0"]
    await redrive(bench, until_ms=later_ms)
    assert bodies(await bench.pop()) == ["a"]


async def test_many_are_sent_page_by_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "MAX_REDRIVEN", 2)
    await bury(bench, "a", "b", "c")
    result = await redrive(bench)
    assert (len(result.results), result.next_offset, result.end_offset) == (2, 2, 3)
    result = await redrive(bench, offset=result.next_offset)
    assert (len(result.results), result.next_offset) == (1, 3)


async def test_a_call_that_finds_nothing_looks_at_so_many_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "MAX_LOOKED_AT", 2)
    await bury(bench, "a", "b", "c")
    page = bench.broker.delivery.dead_letters(DeadLetterQuery("g", message_ids=frozenset(["id-c-2"])))
    assert (page.letters, page.next_offset, page.end_offset) == ((), 2, 3)


async def test_what_the_target_refuses_stays_and_the_others_are_sent(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("gone"))
    await bury(bench, "a", topic="gone")
    await bury(bench, "b")
    bench.broker.topics.delete("gone")
    result = await redrive(bench)
    assert [bool(one.refusal) for one in result.results] == [True, False]
    assert "MS-2101" in result.results[0].refusal
    assert waiting(bench) == ["id-a-0"]
    bench.broker.topics.create(TopicConfig("gone"))
    assert [one.refusal for one in (await redrive(bench)).results] == [""]
    assert waiting(bench) == []


async def test_dead_letters_can_go_to_another_topic_that_takes_their_type(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("other", read_queues=1, write_queues=1))
    bench.broker.topics.create(TopicConfig("ordered", MessageType.FIFO))
    await bury(bench, "a", "b")
    result = await redrive(bench, "ordered", max_letters=1)
    assert "MS-3008" in result.results[0].refusal
    await redrive(bench, "other")
    assert bodies(await bench.pop("h", topic="other")) == ["a", "b"]


async def test_a_message_of_a_delay_topic_comes_at_once(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("later", MessageType.DELAY))
    await bury(bench, "a", topic="later", TIMER_DELIVER_MS="1")
    assert [one.refusal for one in (await redrive(bench)).results] == [""]
    (again,) = await bench.pop(topic="later")
    assert "TIMER_DELIVER_MS" not in again.message.properties


async def test_a_message_of_a_transaction_that_was_committed_is_committed_still(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("paid", MessageType.TRANSACTION))
    await bench.send("a", topic="paid", UNIQ_KEY="id-a", TRAN_MSG="true")
    await bench.broker.delivery.end_transaction("paid", "id-a", Resolution.COMMIT)
    (popped,) = await bench.pop(topic="paid")
    await bench.broker.delivery.move_to_dead_letter(AckRequest("g", "paid", popped.handle))
    assert [one.refusal for one in (await redrive(bench)).results] == [""]
    assert bodies(await bench.pop(topic="paid")) == ["a"]


async def test_a_message_of_a_lite_topic_goes_back_to_it_once_over_a_crash(tmp_path: Path) -> None:
    wish = {"topic": "devices", "client_id": "c"}
    sync = LiteSync("c", "g", "devices", LiteAction.PARTIAL_ADD, ("d1",))
    async with open_bench(tmp_path) as bench:
        bench.broker.topics.create(TopicConfig("devices", MessageType.LITE, 1, 1))
        await bench.send("a", topic="devices", UNIQ_KEY="id-a", __LITE_TOPIC="d1")
        bench.broker.delivery.sync_lite_subscription(sync)
        (popped,) = await bench.pop(**wish)
        await bench.broker.delivery.move_to_dead_letter(AckRequest("g", "devices", popped.handle))
        assert [one.refusal for one in (await redrive(bench)).results] == [""]
        assert len(await bench.pop(**wish)) == 1
    for name in ("redriven.json", "redriven.json.bak"):
        (tmp_path / "config" / name).unlink()
    # A crash before the first note was on the disk: nothing says that there must be one.
    StoreManifest(tmp_path).forget(["config/redriven.json"])
    async with open_bench(tmp_path) as bench:
        assert len(waiting(bench)) == 1
        await redrive(bench)
        bench.broker.delivery.sync_lite_subscription(sync)
        bench.clock.advance_ms(60_000)
        assert bodies(await bench.pop(**wish)) == ["a"]


async def test_a_letter_that_does_not_say_where_it_comes_from_needs_a_target(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("%DLQ%g", read_queues=1, write_queues=1))
    await bench.send("stray", topic="%DLQ%g")
    result = await redrive(bench)
    assert "MS-3211" in result.results[0].refusal
    assert (await redrive(bench, "t")).results[0].refusal == ""
    (stray,) = await bench.pop()
    assert stray.message.message_id


async def test_an_ordered_message_goes_back_to_the_queue_of_its_group(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("ordered", MessageType.FIFO))
    await bench.send("a", topic="ordered", queue_id=None, __SHARDINGKEY="customer", UNIQ_KEY="id-a")
    (popped,) = await bench.pop(topic="ordered")
    await bench.broker.delivery.move_to_dead_letter(AckRequest("g", "ordered", popped.handle))
    await redrive(bench)
    (again,) = await bench.pop(topic="ordered")
    assert again.message.queue_id == popped.message.queue_id


async def test_what_was_sent_is_known_after_a_restart(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await bury(bench, "a", "b")
        await redrive(bench, max_letters=1)
    async with open_bench(tmp_path) as bench:
        assert waiting(bench) == ["id-b-1"]


async def test_a_crash_that_takes_the_note_of_what_was_sent_doubles_nothing(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await bury(bench, "a", "b", "c")
        await redrive(bench, max_letters=2)
        bench.ack(*await bench.pop())
    for name in ("redriven.json", "redriven.json.bak"):
        (tmp_path / "config" / name).unlink()
    # A crash before the first note was on the disk: nothing says that there must be one.
    StoreManifest(tmp_path).forget(["config/redriven.json"])
    async with open_bench(tmp_path) as bench:
        assert len(waiting(bench)) == 3
        assert [one.refusal for one in (await redrive(bench)).results] == ["", "", ""]
        assert bodies(await bench.pop()) == ["c"]
        assert waiting(bench) == []


async def test_a_failed_store_leaves_the_letters_and_doubles_nothing_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(bench, "a", "b")
    stored = Appender.append_now
    calls = 0

    async def stored_but_not_confirmed(self: Appender, records: Any) -> Any:
        nonlocal calls
        calls += 1
        done = await stored(self, records)
        if calls == 2:
            raise StoreError("FLUSH_TIMEOUT", "The disk did not answer.")
        return done

    monkeypatch.setattr(Appender, "append_now", stored_but_not_confirmed)
    with pytest.raises(StoreError):
        await redrive(bench)
    await settle()
    assert waiting(bench) == ["id-b-1"]
    await redrive(bench)
    assert sorted(bodies(await bench.pop())) == ["a", "b"]
    assert await bench.pop() == []


async def test_dead_letters_after_their_topic_was_deleted_are_others(bench: Bench) -> None:
    await bury(bench, "a")
    await redrive(bench)
    bench.broker.topics.delete("%DLQ%g")
    (again,) = await bench.pop()
    await bench.broker.delivery.move_to_dead_letter(AckRequest("g", "t", again.handle))
    assert waiting(bench) == ["id-a-0"]
    await redrive(bench)
    assert bodies(await bench.pop()) == ["a"]


TOPIC = "one-queue"
MAX_ATTEMPTS = 3
INVISIBLE_MS = 100


class RetryMachine(RuleBasedStateMachine):
    """One group whose messages fail, die and are sent again, over restarts, against a list that is searched whole.

    A row of the model is one message in the topic: its body, attempts, when it is visible, and what became of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(dir=MEMORY)
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.rows: list[dict[str, Any]] = []
        self.dead: list[dict[str, Any]] = []
        self.handles: dict[int, PoppedMessage] = {}
        self.sent = 0
        self.start()
        self.bench.broker.groups.create(GroupConfig("g", max_attempts=MAX_ATTEMPTS))
        self.bench.broker.topics.create(TopicConfig(TOPIC, read_queues=1, write_queues=1))

    def start(self) -> None:
        self.opened = open_bench(Path(self.directory.name), clock=self.clock)
        self.bench = self.runner.run(self.opened.__aenter__())

    def teardown(self) -> None:
        self.runner.run(self.opened.__aexit__(None, None, None))
        self.runner.close()
        shutil.rmtree(self.directory.name)

    def flying(self) -> list[int]:
        return [offset for offset, row in enumerate(self.rows) if row["state"] == "flying"]

    def new_row(self, body: str) -> None:
        self.rows.append({"body": body, "state": "new", "attempts": 0, "visible_ms": 0})

    def die(self, offset: int) -> None:
        row = self.rows[offset]
        row["state"] = "dead"
        self.dead.append({"body": row["body"], "attempts": row["attempts"], "waiting": True})
        self.handles.pop(offset, None)

    @rule()
    def send(self) -> None:
        self.runner.run(self.bench.send(f"m{self.sent}", topic=TOPIC, UNIQ_KEY=f"id{self.sent}"))
        self.new_row(f"m{self.sent}")
        self.sent += 1

    @rule(by_ms=st.sampled_from([1, INVISIBLE_MS, 500]))
    def time_passes(self, by_ms: int) -> None:
        self.clock.advance_ms(by_ms)

    @rule(limit=st.integers(1, 4))
    def receive(self, limit: int) -> None:
        now_ms = self.clock.now_ms()
        while True:
            due = [offset for offset in self.flying() if self.rows[offset]["visible_ms"] <= now_ms][:limit]
            doomed = [offset for offset in due if self.rows[offset]["attempts"] >= MAX_ATTEMPTS]
            fresh = [offset for offset, row in enumerate(self.rows) if row["state"] == "new"]
            expected = [offset for offset in due if offset not in doomed] + fresh[: limit - len(due)]
            for offset in doomed:
                self.die(offset)
            if expected or not doomed:
                break
        popped = self.runner.run(self.bench.pop(topic=TOPIC, invisible_ms=INVISIBLE_MS, max_messages=limit))
        assert [one.message.queue_offset for one in popped] == expected
        for one, offset in zip(popped, expected, strict=True):
            row = self.rows[offset]
            row.update(state="flying", attempts=row["attempts"] + 1, visible_ms=now_ms + INVISIBLE_MS)
            self.handles[offset] = one
        assert attempts(popped) == [self.rows[offset]["attempts"] for offset in expected]

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.handles)))
        self.bench.ack(self.handles.pop(offset), topic=TOPIC)
        self.rows[offset]["state"] = "done"

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.handles)))
        handle = self.handles[offset].handle
        self.runner.run(self.bench.broker.delivery.move_to_dead_letter(AckRequest("g", TOPIC, handle)))
        self.die(offset)

    @precondition(lambda self: self.dead)
    @rule(limit=st.integers(1, 3))
    def send_again(self, limit: int) -> None:
        result = self.runner.run(redrive(self.bench, max_letters=limit))
        wanted = [letter for letter in self.dead if letter["waiting"]][:limit]
        assert [one.message_id for one in result.results] == [f"id{letter['body'][1:]}" for letter in wanted]
        for letter in wanted:
            letter["waiting"] = False
            self.new_row(letter["body"])

    @rule()
    def restart(self) -> None:
        self.runner.run(self.opened.__aexit__(None, None, None))
        self.start()

    @invariant()
    def the_dead_letters_are_told_with_their_attempts_and_what_was_sent_again(self) -> None:
        page = self.bench.broker.delivery.dead_letters(DeadLetterQuery("g"))
        told = [(letter.message_id, letter.attempts, not letter.is_redriven) for letter in page.letters]
        assert told == [(f"id{one['body'][1:]}", one["attempts"], one["waiting"]) for one in self.dead]


RetryMachine.TestCase.settings = settings(max_examples=scaled(12), stateful_step_count=25, deadline=None)
TestRetryMachine = RetryMachine.TestCase
