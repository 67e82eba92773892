"""Settings of groups, as tools write and read them."""

from __future__ import annotations

import json
from typing import Any

from tool import Tool

from millstream.model.group import FirstPosition, GroupConfig
from millstream.protocol.remoting.administration.settings import encode_group
from servers import Servers

WHOLE: dict[str, Any] = {
    "groupName": "g", "consumeEnable": True, "consumeFromMinEnable": False, "consumeBroadcastEnable": False,
    "consumeMessageOrderly": True, "retryQueueNums": 3, "retryMaxTimes": 5,
    "groupRetryPolicy": {"type": "CUSTOMIZED"}, "brokerId": 1, "whichBrokerWhenConsumeSlowly": 2,
    "notifyConsumerIdsChangedEnable": False, "groupSysFlag": 4, "consumeTimeoutMinute": 7,
    "subscriptionDataSet": None, "attributes": {"+owner": "me"},
}  # fmt: skip


async def put(tool: Tool, **changes: object) -> int:
    return (await tool.ask(200, json.dumps({**WHOLE, **changes}).encode())).code


async def test_all_that_a_tool_says_of_a_group_is_told_again(tool: Tool, servers: Servers) -> None:
    assert await put(tool) == 0
    told = await tool.told(352, group="g")
    same = set(WHOLE) - {"groupRetryPolicy", "attributes"}
    assert {name: told[name] for name in same} == {name: WHOLE[name] for name in same}
    assert told["attributes"] == {"owner": "me"}
    group = servers.broker.groups.get("g")
    assert (group.fifo, group.max_attempts) == (True, 6)
    table = (await tool.told(201))["subscriptionGroupTable"]
    assert table["g"]["consumeTimeoutMinute"] == 7


async def test_a_tools_change_leaves_attributes_that_it_does_not_name(tool: Tool, servers: Servers) -> None:
    own = GroupConfig("g", first_position=FirstPosition.LAST, lite_exclusive=True)
    assert (await tool.ask(200, encode_group(own))).code == 0
    assert await put(tool, attributes={}) == 0
    assert servers.broker.groups.get("g").first_position is FirstPosition.LAST
    assert await put(tool, attributes={"+a": "1", "-lite.sub.model": ""}) == 0
    group = servers.broker.groups.get("g")
    assert (group.first_position, group.lite_exclusive, group.attributes["a"]) == (FirstPosition.LAST, False, "1")
    assert (await tool.ask(200, encode_group(GroupConfig("g")))).code == 0
    assert servers.broker.groups.get("g") == GroupConfig("g")


async def test_an_attribute_cannot_pretend_to_be_a_setting(tool: Tool) -> None:
    assert await put(tool, attributes={"+rocketmq.brokerId": "x{"}) == 0
    assert (await tool.told(352, group="g"))["brokerId"] == 1


async def test_a_list_of_groups_is_created_or_nothing_where_one_cannot_be_read(tool: Tool, servers: Servers) -> None:
    groups = [{**WHOLE, "groupName": name} for name in ("a", "b")]
    assert (await tool.ask(225, json.dumps({"groupConfigList": groups}).encode())).code == 0
    assert {group.name for group in servers.broker.groups.all()} == {"a", "b"}
    bad = [{**WHOLE, "groupName": "c"}, {"groupName": "d", "attributes": {"consume.first.position": "nowhere"}}]
    assert (await tool.ask(225, json.dumps({"groupConfigList": bad}).encode())).code == 13
    assert servers.broker.groups.find("c") is None


async def test_there_are_only_so_many_attributes(tool: Tool) -> None:
    assert await put(tool, attributes={f"+a{number}": "" for number in range(65)}) == 13
    assert await put(tool, attributes={"+a": "x" * 4096}) == 13
