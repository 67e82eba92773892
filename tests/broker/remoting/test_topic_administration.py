"""What tools do with topics over a real connection: change them, list them, delete them."""

from __future__ import annotations

import json

import pytest
from tool import Tool

from millstream.broker.queues.topics import own_topics
from millstream.model.topic import MessageType, TopicConfig
from servers import Servers

CREATE = {"topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}


async def test_a_tool_changes_queues_permission_and_attributes_of_a_topic(tool: Tool, servers: Servers) -> None:
    assert (await tool.ask(17, **CREATE, attributes="+message.type=FIFO,+reserve.time=1")).code == 0
    changes = {**CREATE, "readQueueNums": 16, "writeQueueNums": 12, "perm": 4}
    assert (await tool.ask(17, **changes, order="true", attributes="-reserve.time,+lite.topic.expiration=5")).code == 0
    told = await tool.told(351, topic="orders")
    assert (told["readQueueNums"], told["writeQueueNums"], told["perm"], told["order"]) == (16, 12, 4, True)
    assert told["attributes"] == {"message.type": "FIFO", "lite.topic.expiration": "5"}
    route = servers.routes.route("orders")
    assert route is not None
    assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].perm) == (16, 4)


@pytest.mark.parametrize("attributes", ["+cleanup.policy=COMPACTION", "+queue.type=BatchCQ", "+message.type=LITE"])
async def test_how_messages_are_stored_cannot_be_changed(tool: Tool, servers: Servers, attributes: str) -> None:
    await tool.ask(17, **CREATE)
    answer = await tool.ask(17, **CREATE, attributes=attributes)
    assert answer.code == 29
    assert "MS-2324" in str(answer.remark)
    assert servers.broker.topics.get("orders") == TopicConfig("orders", MessageType.MIXED, 8, 8)


async def test_a_list_of_topics_is_created_or_nothing_where_one_cannot_be_read(tool: Tool, servers: Servers) -> None:
    first = {"topicName": "a", "readQueueNums": 2, "writeQueueNums": 2, "attributes": {"+message.type": "DELAY"}}
    both = json.dumps({"topicConfigList": [first, {"topicName": "b", "perm": 4}]}).encode()
    assert (await tool.ask(18, both)).code == 0
    assert servers.broker.topics.get("a") == TopicConfig("a", MessageType.DELAY, 2, 2)
    assert servers.broker.topics.get("b").read_queues == 16
    bad = {"topicName": "d", "attributes": {"-nothing": ""}}
    assert (await tool.ask(18, json.dumps({"topicConfigList": [{"topicName": "c"}, bad]}).encode())).code == 29
    assert servers.broker.topics.find("c") is None


@pytest.mark.parametrize("name", ["%RETRY%nobody", "none"])
async def test_a_topic_that_there_is_not_is_deleted_without_a_word(tool: Tool, name: str) -> None:
    assert (await tool.ask(215, topic=name)).code == 0


async def test_a_group_that_there_is_not_is_deleted_without_a_word_unless_it_must_be_there(tool: Tool) -> None:
    assert (await tool.ask(207, groupName="none", cleanOffset="true")).code == 0
    assert (await tool.ask(207, groupName="none", cleanOffset="true", mustExist="true")).code == 26
    assert (await tool.ask(351, topic="nothing")).code == 17


async def test_own_topics_are_found_by_tools_and_stay(tool: Tool, servers: Servers) -> None:
    servers.broker.topics.offer(own_topics("broker-a", "DefaultCluster"))
    assert (await tool.told(305))["topicList"] == [
        "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC", "broker-a",
    ]  # fmt: skip
    assert (await tool.told(351, topic="DefaultCluster"))["perm"] == 7
    for code in (17, 215):
        assert (await tool.ask(code, topic="DefaultCluster", readQueueNums=1, writeQueueNums=1, perm=6)).code == 29
    sent = await tool.ask(
        310, b"trace", a="g", b="RMQ_SYS_TRACE_TOPIC", c="TBW102", d=4, e=0, f=0, g=1, h=0, i="KEYS\x01k\x02"
    )
    assert sent.code == 0
