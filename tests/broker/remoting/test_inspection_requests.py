"""Looking into queues and positions, and copying positions, as tools ask for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tool import Tool

from millstream.broker.remoting import tools
from millstream.model.filter import ALL
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PopRequest
from millstream.model.topic import TopicConfig
from millstream.store.consume_queue import tags_code
from servers import Servers

NO_BOUND = (1 << 63) - 1


@pytest_asyncio.fixture
async def held(servers: Servers) -> AsyncIterator[Servers]:
    """Topic `t` of two queues with five messages in queue 0; group `g` committed 3, `h` 1 of them there."""
    broker = servers.broker
    broker.topics.create(TopicConfig("t", read_queues=2, write_queues=2, ordered=True))
    await broker.delivery.send([OutgoingMessage("t", b"%d" % number, {"TAGS": "x"}, queue_id=0) for number in range(5)])
    broker.queues.commit("g", "t", 0, 3)
    broker.queues.commit("h", "t", 0, 1)
    yield servers


async def test_a_time_span_tells_when_messages_were_stored_and_how_long_one_waits(tool: Tool, held: Servers) -> None:
    spans = (await tool.told(303, topic="t", group="g"))["consumeTimeSpanSet"]
    first, empty = sorted(spans, key=lambda span: span["messageQueue"]["queueId"])
    assert first["messageQueue"] == {"topic": "t", "brokerName": "broker-a", "queueId": 0}
    assert first["minTimeStamp"] <= first["consumeTimeStamp"] <= first["maxTimeStamp"]
    assert 0 <= first["delayTime"] < 60_000
    assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]) == (-1, -1, 0)


async def test_the_smallest_offset_of_all_groups_is_told_unless_the_compared_one_is_behind_it(
    tool: Tool, held: Servers
) -> None:
    assert (await tool.told(308, topic="t"))["correctionOffsets"] == {"0": 1}
    assert (await tool.told(308, topic="t", filterGroups="h"))["correctionOffsets"] == {"0": 3}
    compared = await tool.told(308, topic="t", filterGroups="h", compareGroup="h")
    assert compared["correctionOffsets"] == {"0": NO_BOUND}


async def test_a_group_is_put_where_another_one_is_even_where_it_popped(tool: Tool, held: Servers) -> None:
    await held.broker.delivery.pop(PopRequest("popper", "t", 60_000, max_messages=4, filter=ALL))
    for target in ("popper", "fresh"):
        assert (await tool.ask(314, srcGroup="g", destGroup=target, topic="t", offline="true")).code == 0
        assert held.broker.queues.committed_offset(target, "t", 0) == 3
    assert (await tool.ask(314, srcGroup="h", destGroup="fresh", topic="")).code == 0
    assert held.broker.queues.committed_offset("fresh", "t", 0) == 1
    assert (await tool.ask(314, srcGroup="nobody", destGroup="fresh")).code == 26
    assert (await tool.ask(314, srcGroup="g", destGroup="fresh", topic="nothing")).code == 17


async def test_the_progress_of_all_groups_is_told_and_of_ordered_topics_alone(
    tool: Tool, held: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.broker.topics.create(TopicConfig("u", read_queues=1, write_queues=1))
    held.broker.queues.commit("g", "u", 0, 0)
    told = await tool.told(317, isOrder="false")
    assert (told["totalDiff"], told["totalInflightDiff"], told["brokerAddr"]) == (6, 0, held.broker_address)
    by_group = {group: tables for row in told["consumeStatsList"] for group, tables in row.items()}
    assert [len(by_group[group]) for group in ("g", "h")] == [2, 1]
    [(queue, offsets)] = [
        (dict(key), value) for key, value in by_group["h"][0]["offsetTable"].items() if ("queueId", 0) in key
    ]
    assert (queue["topic"], offsets["brokerOffset"], offsets["consumerOffset"]) == ("t", 5, 1)
    ordered = await tool.told(317, isOrder="true")
    assert [len(tables) for row in ordered["consumeStatsList"] for tables in row.values()] == [1, 1]
    monkeypatch.setattr(tools, "MAX_TOLD_BYTES", 100)
    assert (await tool.ask(317, isOrder="false")).code == 2


async def test_entries_of_a_queue_are_told_as_its_index_has_them(tool: Tool, held: Servers) -> None:
    told = await tool.told(321, topic="t", queueId=0, index=3, count=10, consumerGroup="g")
    assert (told["minQueueIndex"], told["maxQueueIndex"], len(told["queueData"])) == (0, 5, 2)
    entry = held.broker.maintenance.store.entries("t", 0, 3, 1)[0]
    first = told["queueData"][0]
    assert (first["physicOffset"], first["physicSize"]) == (entry.log_offset, entry.size_bytes)
    assert first["tagsCode"] == tags_code("x")
    assert (await tool.ask(321, topic="t", queueId=0, index=0, count=1001)).code == 29
    assert (await tool.ask(321, topic="t", queueId=2, index=0, count=1)).code == 29


async def test_what_a_group_wants_of_a_topic_is_told_while_it_is_there(tool: Tool, held: Servers) -> None:
    assert (await tool.told(345, group="g", topic="t"))["subscriptionData"] is None
    beat = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"t","subString":"a||b","subVersion":1}]}]}'
    )
    await tool.ask(34, beat)
    told = await tool.told(345, group="g", topic="t")
    assert (told["group"], told["topic"], told["subscriptionData"]["subString"]) == ("g", "t", "a||b")
    assert (await tool.ask(345, group="nobody", topic="t")).code == 26
    assert (await tool.ask(345, group="no group!", topic="t")).code == 26


async def test_progress_of_a_list_of_topics_passes_over_those_that_are_not_there(tool: Tool, held: Servers) -> None:
    table = (await tool.told(208, consumerGroup="g", topicList="t;nothing"))["offsetTable"]
    assert {dict(queue)["topic"] for queue in table} == {"t"}
    assert (await tool.told(208, consumerGroup="g", topicList="nothing"))["offsetTable"] == {}
    assert (await tool.ask(208, consumerGroup="g", topic="nothing")).code == 17
    assert (await tool.ask(208, consumerGroup="nobody")).code == 26


async def test_a_deleted_group_leaves_its_offsets_where_a_tool_says_so(tool: Tool, held: Servers) -> None:
    assert (await tool.ask(207, groupName="g", cleanOffset="false")).code == 0
    assert held.broker.queues.committed_offset("g", "t", 0) == 3
    assert (await tool.ask(207, groupName="h", cleanOffset="true")).code == 0
    assert held.broker.queues.committed_offset("h", "t", 0) is None
