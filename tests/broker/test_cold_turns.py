"""While large rows are taken up, others have their turns: they find each message, and may change what is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import Bench
from crash.faulty_objects import FaultyObjects
from test_cold_merges import (
    OPTIONS,
    STORE,
    TOPICS,
    assert_whole,
    let_go,
    merge_all,
    ranges_of,
    read,
    send_by_rounds,
)
from test_cold_tier import chunks, cold_bench

from millstream.broker import cold_tier, cold_topics
from millstream.broker.state.document import encode_document
from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.tiered import cold_map, cold_work
from millstream.tiered.cold_map import ColdMap, ColdStretch
from millstream.tiered.merge_plan import MERGED_ROWS

ROUNDS = MERGED_ROWS


@pytest.fixture(autouse=True)
def _in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UPLOAD_INTERVAL_S", "CLEAN_INTERVAL_S"):
        monkeypatch.setattr(cold_tier, name, 1e6)
    monkeypatch.setattr(cold_map, "STEP_PARTS", 4)
    monkeypatch.setattr(cold_topics, "TOPICS_AT_ONCE", 4)


@pytest.fixture
def objects() -> FaultyObjects:
    return FaultyObjects()


@pytest.fixture
async def bench(tmp_path: Path, objects: FaultyObjects) -> AsyncIterator[Bench]:
    async with cold_bench(tmp_path, objects, ManualClock(), OPTIONS, STORE) as bench:
        yield bench


class BetweenSteps:
    """Acts in a turn of the loop after the second step in which a merged row is prepared, or after each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], *, always: bool = False) -> None:
        self.steps, self._act = 0, act
        self.errors: list[AssertionError] = []
        prepare = ColdMap.prepare

        def prepare_in_steps(cold: ColdMap, name: str, row: ColdStretch) -> Generator[None, None, None]:
            for step in prepare(cold, name, row):
                self.steps += 1
                if always or self.steps == 2:
                    asyncio.get_running_loop().call_soon(self._try)
                yield step

        monkeypatch.setattr(ColdMap, "prepare", prepare_in_steps)

    def _try(self) -> None:
        try:
            self._act()
        except AssertionError as error:
            self.errors.append(error)


async def test_each_message_is_found_in_each_turn_of_a_merge(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await send_by_rounds(bench, ROUNDS)
    cold, ranges = bench.broker.cold, {topic: set[int]() for topic in TOPICS}
    needed = cold.first_needed()

    def look() -> None:
        for topic in TOPICS:
            for offset in range(ROUNDS):
                found = cold.map.find(topic, 0, offset)
                assert found is not None
                assert found.first_queue_offset <= offset < found.next_queue_offset
            ranges[topic].add(ranges_of(bench, topic))
        assert cold.first_needed() == needed

    between = BetweenSteps(monkeypatch, look, always=True)
    assert await merge_all(bench) == 1
    look()
    assert not between.errors
    assert between.steps == 1 + len(TOPICS) // 4
    assert all(seen == {ROUNDS, 1} for seen in ranges.values())
    await assert_whole(bench, ROUNDS)


async def test_a_topic_that_is_deleted_between_two_steps_is_gone_and_its_successor_empty(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send_by_rounds(bench, ROUNDS)

    def delete() -> None:
        bench.broker.topics.delete(TOPICS[5])
        bench.broker.topics.create(TopicConfig(TOPICS[5]))

    between = BetweenSteps(monkeypatch, delete)
    assert await merge_all(bench) == 1
    # The row without that topic was prepared as well.
    assert between.steps == (1 + len(TOPICS) // 4) + (1 + (len(TOPICS) - 1) // 4)
    assert ranges_of(bench, TOPICS[5]) == 0
    await assert_whole(bench, 0, [TOPICS[5]])
    await assert_whole(bench, ROUNDS, topics=[topic for topic in TOPICS if topic != TOPICS[5]])
    assert all(TOPICS[5] != part.topic for _, one in bench.broker.cold.map.objects for part in one.parts)


async def test_what_is_removed_between_two_steps_does_not_come_back(
    bench: Bench, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send_by_rounds(bench, ROUNDS)
    cold = bench.broker.cold

    def remove() -> None:
        name, row = cold.map.stretches()[0]
        assert row.objects
        cold.write([(name, cold_map.remove_objects(row, [row.objects[0].key], bench.clock.now_ms()))])

    BetweenSteps(monkeypatch, remove)
    assert await merge_all(bench) == 0
    assert all(cold.map.bounds(topic, 0) == (1, ROUNDS) for topic in TOPICS)
    await cold.merge_due()
    await let_go(bench)
    assert {one.key for _, one in cold.map.objects} == chunks(objects)


async def test_a_row_whose_messages_a_copy_has_begun_to_take_is_not_merged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send_by_rounds(bench, ROUNDS)
    merges = bench.broker.cold._merges
    assert merges is not None
    BetweenSteps(monkeypatch, lambda: setattr(merges, "_may_join", lambda _rows: False))
    assert await merge_all(bench) == 0
    assert ranges_of(bench, TOPICS[0]) == ROUNDS


async def test_a_topic_that_is_deleted_while_it_goes_up_is_gone_and_its_successor_empty(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    put = cold_work.WorkHere.put

    async def delete() -> None:
        bench.broker.topics.delete(TOPICS[5])
        bench.broker.topics.create(TopicConfig(TOPICS[5]))
        await bench.broker.delivery.send([OutgoingMessage(TOPICS[5], b"new", {}, queue_id=0)])

    def put_and_delete(*words: Any) -> Any:
        found = put(*words)
        asyncio.run_coroutine_threadsafe(delete(), loop).result()
        return found

    monkeypatch.setattr(cold_work.WorkHere, "put", put_and_delete)
    await send_by_rounds(bench, 1)
    assert ranges_of(bench, TOPICS[5]) == 0
    assert ranges_of(bench, TOPICS[4]) == ranges_of(bench, TOPICS[6]) == 1
    assert await read(bench, TOPICS[5]) == ["new"]
    monkeypatch.undo()
    bench.broker.maintenance.store.flush()
    await bench.broker.cold.upload_due()
    assert bench.broker.cold.map.bounds(TOPICS[5], 0) == (0, 1)
    assert await read(bench, TOPICS[5]) == ["new"]


async def test_topics_that_are_deleted_before_a_stretch_ends_are_no_matter_of_the_next(bench: Bench) -> None:
    await send_by_rounds(bench, 1)
    bench.broker.topics.delete(TOPICS[5])
    bench.broker.topics.create(TopicConfig(TOPICS[5]))
    await send_by_rounds(bench, 1)
    assert bench.broker.cold.map.bounds(TOPICS[5], 0) == (0, 1)
    assert bench.broker.cold.map.bounds(TOPICS[6], 0) == (0, 2)


async def test_an_object_that_a_merge_goes_on_with_is_not_removed_from_the_row_that_had_it(bench: Bench) -> None:
    await send_by_rounds(bench, 3)
    cold = bench.broker.cold
    first, *others = cold.map.stretches()
    bench.clock.advance_ms(1001 * 3_600_000)

    def carry_on() -> None:
        begin, end = others[0][1].log_begin, others[-1][1].log_end
        kept = tuple(one for _, row in others for one in row.objects or ())
        cold.write([("carried", ColdStretch(0, begin, end, kept, replaces=tuple(name for name, _ in others)))])

    asyncio.get_running_loop().call_soon(carry_on)
    await cold.clean()
    removed = {key for row in cold.map.rows.values() for key in row.removed_ms}
    assert removed == {one.key for one in first[1].objects or ()}
    assert {name for name, _ in cold.map.objects} == {"carried"}
    await cold.clean()
    assert not [*cold.map.objects]


async def test_the_document_is_made_in_turns_and_holds_the_rows_as_they_were_at_its_beginning(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_tier, "_ENCODED_AT_ONCE", 1)
    await send_by_rounds(bench, 3)
    cold = bench.broker.cold
    rows, changed = cold.make_document(), False

    def change() -> None:
        nonlocal changed
        changed = True
        cold.forget_topic(TOPICS[3])

    asyncio.get_running_loop().call_soon(change)
    text = await cold.table.encode()
    assert changed
    assert text == encode_document(rows) != encode_document(cold.make_document())


async def test_what_changes_while_a_manifest_is_made_is_said_by_the_next_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_tier, "_ENCODED_AT_ONCE", 1)
    await send_by_rounds(bench, 3)
    cold, encode = bench.broker.cold, bench.broker.cold._encode_in_turns
    texts: list[bytes] = []

    async def encode_and_delete() -> bytes:
        if not texts:
            asyncio.get_running_loop().call_soon(bench.broker.topics.delete, TOPICS[3])
        texts.append(await encode())
        return texts[-1]

    monkeypatch.setattr(cold.table, "_encode_in_turns", encode_and_delete)
    cold._changes_unsaid = 1
    await cold._put_manifest()
    assert cold._changes_unsaid
    while cold._changes_unsaid:
        await cold.upload_due()
    assert [f'"{TOPICS[3]}"'.encode() in text for text in texts] == [True, False]
