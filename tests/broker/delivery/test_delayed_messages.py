"""Delayed messages: delivered at their time and once, over crashes and recalls."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from broker_bench import Bench, bodies, open_bench, running, settle

from millstream.broker.delivery.timers import Timers
from millstream.model.clock import ManualClock
from millstream.model.errors import MessageRefused, NameRefused, StartRefused, StoreError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from patience import eventually

SECOND_MS = 1000
DAY_MS = 24 * 3600 * SECOND_MS


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.broker.delivery.timers.POLL_S", 0.002)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "data") as opened:
        opened.broker.topics.create(TopicConfig("later", MessageType.DELAY))
        yield opened


async def send(bench: Bench, body: str, *, topic: str = "later", **properties: str) -> SendReceipt:
    message = OutgoingMessage(topic, body.encode(), {"UNIQ_KEY": f"ID-{body}", **properties}, queue_id=1)
    return (await bench.broker.delivery.send([message]))[0]


async def arrivals(bench: Bench, wanted: int = 1) -> list[str]:
    """What can be received within a short real time."""
    found: list[str] = []
    for _ in range(100):
        popped = await bench.pop(topic="later")
        bench.ack(*popped, topic="later")
        found += bodies(popped)
        if len(found) >= wanted:
            break
        await asyncio.sleep(0.005)
    return found


async def nothing_arrives(bench: Bench) -> bool:
    await asyncio.sleep(0.05)
    return await bench.pop(topic="later") == []


@pytest.mark.parametrize(
    ("wish", "delay_ms"),
    [
        ({"TIMER_DELAY_MS": "1500"}, 1500),
        ({"TIMER_DELAY_SEC": "3"}, 3000),
        ({"DELAY": "2"}, 5000),
        ({"DELAY": "99"}, 7_200_000),
        ({"TIMER_DELIVER_MS": str(1_700_000_000_000 + DAY_MS)}, DAY_MS),
    ],
)
async def test_a_message_comes_at_its_time_and_not_before(bench: Bench, wish: dict[str, str], delay_ms: int) -> None:
    receipt = await send(bench, "a", KEYS="k", TAGS="t", mine="x", **wish)
    assert receipt.due_ms == bench.clock.now_ms() + delay_ms
    bench.clock.advance_ms(delay_ms - 1)
    assert await nothing_arrives(bench)
    bench.clock.advance_ms(1)
    popped = []
    while not popped:
        popped = await bench.pop(topic="later")
        await asyncio.sleep(0.005)
    message = popped[0].message
    assert (message.body, message.queue_id, message.tag, message.keys) == (b"a", 1, "t", ("k",))
    assert (message.user_properties.get("mine"), message.message_id) == ("x", "ID-a")
    assert not {"REAL_TOPIC", "REAL_QID"} & message.properties.keys()
    assert "__TIMER_OF" not in message.user_properties
    bench.clock.advance_ms(DAY_MS)
    bench.ack(*popped, topic="later")
    assert await nothing_arrives(bench)


async def test_messages_come_in_the_order_of_their_times(bench: Bench) -> None:
    for seconds in (5, 1, 3, 1):
        await send(bench, f"{seconds}", TIMER_DELAY_SEC=str(seconds))
    bench.clock.advance_ms(10_000)
    assert await arrivals(bench, 4) == ["1", "1", "3", "5"]


async def test_a_time_that_has_passed_is_now(bench: Bench) -> None:
    receipt = await send(bench, "a", TIMER_DELIVER_MS=str(bench.clock.now_ms() - 1))
    assert receipt.due_ms is None
    assert await arrivals(bench) == ["a"]


@pytest.mark.parametrize("delay_ms", [-1, 1000])
async def test_what_comes_still_says_when_it_was_to_come(bench: Bench, delay_ms: int) -> None:
    wanted = str(bench.clock.now_ms() + delay_ms)
    await send(bench, "a", TIMER_DELIVER_MS=wanted)
    bench.clock.advance_ms(1000)
    popped = []
    while not popped:
        popped = await bench.pop(topic="later")
        await asyncio.sleep(0.005)
    assert popped[0].message.properties["TIMER_DELIVER_MS"] == wanted


@pytest.mark.parametrize(
    "wish", [{"TIMER_DELAY_SEC": "259201"}, {"TIMER_DELAY_MS": "soon"}, {"TIMER_DELIVER_MS": "-5"}, {"DELAY": "x"}]
)
async def test_times_that_are_none_or_too_far_are_refused(bench: Bench, wish: dict[str, str]) -> None:
    with pytest.raises(MessageRefused) as refused:
        await send(bench, "a", **wish)
    assert refused.value.name == "ILLEGAL_DELIVERY_TIME"


async def test_a_recalled_message_never_comes_and_a_second_recall_says_so(bench: Bench) -> None:
    await send(bench, "a", TIMER_DELAY_SEC="5")
    await send(bench, "b", TIMER_DELAY_SEC="5")
    await settle()
    await bench.broker.delivery.recall("later", "ID-a")
    bench.clock.advance_ms(6000)
    assert await arrivals(bench) == ["b"]
    for gone in ("ID-a", "ID-b", "ID-none"):
        with pytest.raises(MessageRefused) as refused:
            await bench.broker.delivery.recall("later", gone)
        assert refused.value.name == "MESSAGE_NOT_FOUND"
    with pytest.raises(NameRefused):
        await bench.broker.delivery.recall("none", "ID-b")


@pytest.mark.parametrize("forgets", [False, True])
async def test_over_a_crash_each_message_comes_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """The copy is what kill -9 leaves; the timers' files are as of any earlier checkpoint, or gone."""
    clock = ManualClock()
    async with open_bench(tmp_path / "data", clock=clock) as bench:
        bench.broker.topics.create(TopicConfig("later", MessageType.DELAY))
        for number in range(6):
            await send(bench, str(number), TIMER_DELAY_SEC=str(number + 1))
        clock.advance_ms(2500)
        assert await arrivals(bench, 2) == ["0", "1"]
        await bench.broker.maintenance.timers._checkpoint()
        clock.advance_ms(1000)
        assert await arrivals(bench) == ["2"]
        await bench.broker.delivery.recall("later", "ID-5")
        await asyncio.to_thread(bench.broker.maintenance.store.flush_log)
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    if forgets:
        shutil.rmtree(tmp_path / "crashed" / "store" / "timers")
    clock.advance_ms(10_000)
    async with running(tmp_path / "crashed", clock=clock) as broker:
        bench = Bench(broker, clock)
        await eventually(lambda: bench.broker.maintenance.timers.pending == 0)
        store = bench.broker.maintenance.store
        entries = store.entries("later", 1, 0, 100)
        stored = [decode_record(store.read(entry)).body.decode() for entry in entries]
        assert stored == ["0", "1", "2", "3", "4"], "each once, but for what was recalled"


async def test_a_start_delivers_what_was_due_before_it_without_a_failure(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_bench(tmp_path, clock=clock) as bench:
        bench.broker.topics.create(TopicConfig("later", MessageType.DELAY))
        await send(bench, "a", TIMER_DELAY_SEC="1")
    clock.advance_ms(2_000)
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with running(tmp_path, clock=clock) as broker:
        assert await arrivals(Bench(broker, clock)) == ["a"]
    assert failures == []


@pytest.mark.parametrize("wish", [{"TIMER_DELIVER_MS": "1"}, {"TIMER_DELAY_SEC": "9"}])
async def test_a_received_mark_that_is_sent_again_ends_no_timer(tmp_path: Path, wish: dict[str, str]) -> None:
    clock = ManualClock()
    async with open_bench(tmp_path / "data", clock=clock) as bench:
        bench.broker.topics.create(TopicConfig("later", MessageType.DELAY))
        await send(bench, "a", TIMER_DELAY_SEC="5")
        await send(bench, "b", __TIMER_OF="0", **wish)
        await asyncio.to_thread(bench.broker.maintenance.store.flush_log)
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    async with running(tmp_path / "crashed", clock=clock) as broker:
        bench = Bench(broker, clock)
        clock.advance_ms(10_000)
        assert sorted(await arrivals(bench, 2)) == ["a", "b"]


def confirmed_late(bench: Bench, name: str) -> Callable[..., asyncio.Future[object]]:
    """The appender's call, whose answer is that the disk's word did not come in time, once; the record is stored."""
    real, left = getattr(bench.broker._appender, name), [True]

    async def late(stored: asyncio.Future[object]) -> object:
        answer = await stored
        if left:
            left.clear()
            raise StoreError("FLUSH_TIMEOUT", "late")
        return answer

    return lambda records: asyncio.ensure_future(late(real(records)))


async def test_what_the_disk_confirms_late_is_not_delivered_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.periodic_task._RETRY_S", 0.002)
    await send(bench, "a", TIMER_DELAY_SEC="5")
    await settle()
    monkeypatch.setattr(bench.broker._appender, "append_many", confirmed_late(bench, "append_many"))
    bench.clock.advance_ms(6000)
    assert await arrivals(bench) == ["a"]
    assert await nothing_arrives(bench)


async def test_a_recall_that_the_disk_confirms_late_holds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(bench, "a", TIMER_DELAY_SEC="5")
    await settle()
    monkeypatch.setattr(bench.broker._appender, "append", confirmed_late(bench, "append"))
    with pytest.raises(StoreError):
        await bench.broker.delivery.recall("later", "ID-a")
    bench.clock.advance_ms(6000)
    assert await nothing_arrives(bench)


async def test_a_recall_that_could_not_be_stored_leaves_the_message_to_come(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(bench, "a", TIMER_DELAY_SEC="5")
    await eventually(lambda: bench.broker.maintenance.timers.pending == 1)
    with monkeypatch.context() as patched:

        def refuse(*_: object) -> None:
            raise StoreError("DISK_FULL", "No room.")

        patched.setattr(bench.broker.maintenance.store, "put", refuse)
        with pytest.raises(StoreError):
            await bench.broker.delivery.recall("later", "ID-a")
    bench.clock.advance_ms(6000)
    assert await arrivals(bench) == ["a"]


async def test_a_recall_whose_caller_has_gone_is_carried_out(bench: Bench) -> None:
    await send(bench, "a", TIMER_DELAY_SEC="5")
    await eventually(lambda: bench.broker.maintenance.timers.pending == 1)
    recalling = asyncio.create_task(bench.broker.maintenance.timers.cancel(0))
    await asyncio.sleep(0)
    recalling.cancel()
    await settle()
    bench.clock.advance_ms(6000)
    assert await nothing_arrives(bench)


async def test_a_message_whose_topic_is_deleted_is_let_go(bench: Bench) -> None:
    await send(bench, "a", TIMER_DELAY_SEC="5")
    await settle()
    timers: Timers = bench.broker.maintenance.timers
    await eventually(lambda: timers.pending == 1)
    bench.broker.topics.delete("later")
    bench.clock.advance_ms(6000)
    await eventually(lambda: timers.pending == 0)


async def test_retention_leaves_what_waits(bench: Bench) -> None:
    await send(bench, "a", TIMER_DELAY_SEC="200000")
    await settle()
    await eventually(lambda: bench.broker.maintenance.timers.pending == 1)
    pin = bench.broker.maintenance.timers._oldest_log_offset
    assert pin in bench.broker.maintenance.store.pins
    assert pin() == bench.broker.maintenance.store.entries("rmq_sys_wheel_timer", 0, 0, 1)[0].log_offset
    bench.clock.advance_ms(200_000_000)
    assert await arrivals(bench) == ["a"]
    assert pin() > bench.broker.maintenance.store.written_log_offset


async def test_timers_that_cannot_be_read_are_a_refusal_and_leave_the_directory_free(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "data"):
        pass
    timers = tmp_path / "data" / "store" / "timers"
    if timers.exists():
        shutil.rmtree(timers)
    timers.write_bytes(b"no directory")
    for _ in range(2):
        with pytest.raises(StartRefused, match="timers"):
            async with running(tmp_path / "data"):
                pass
    timers.unlink()
    async with running(tmp_path / "data"):
        pass
