"""How a broker is doing and how it is set, as tools ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tool import Tool

from millstream.broker import statistics
from millstream.model.errors import NameRefused
from millstream.model.filter import ALL
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PopRequest
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.java_formats import decode_java_properties
from millstream.telemetry.counters import Counters
from servers import Servers


async def send(servers: Servers, *bodies: bytes, topic: str = "t") -> None:
    servers.broker.topics.create(TopicConfig(topic))
    await servers.broker.delivery.send([OutgoingMessage(topic, body, {}, queue_id=0) for body in bodies])


async def test_runtime_fields_tell_what_was_counted_and_where_the_log_is(tool: Tool, servers: Servers) -> None:
    await send(servers, b"a", b"b")
    await servers.broker.delivery.pop(PopRequest("g", "t", 60_000, max_messages=1, filter=ALL))
    table = (await tool.told(28))["table"]
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"], table["brokerActive"]) == ("2", "1", "true")
    assert int(table["commitLogMaxOffset"]) == servers.broker.maintenance.store.written_log_offset
    assert int(table["earliestMessageTimeStamp"]) > 1_600_000_000_000
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    assert len(table["putTps"].split()) == 3
    assert table["brokerVersionDesc"].startswith("MILLSTREAM_")


async def test_every_number_that_a_list_of_clusters_prints_can_be_read(tool: Tool) -> None:
    table = (await tool.told(28))["table"]
    for name in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum", "pageCacheLockTimeMills",
                 "earliestMessageTimeStamp", "msgPutTotalYesterdayMorning", "msgGetTotalTodayMorning"):  # fmt: skip
        int(table[name])
    for name in ("timerEnqueueTps", "timerDequeueTps", "commitLogDiskRatio"):
        float(table[name])
    for kind in ("send", "pull"):
        assert table[f"{kind}ThreadPoolQueueSize"] == table[f"{kind}ThreadPoolQueueHeadWaitTimeMills"] == "0"


async def test_sums_are_told_by_topic_and_by_group(tool: Tool, servers: Servers) -> None:
    await send(servers, b"a", b"bcd")
    await servers.broker.delivery.pop(PopRequest("g", "t", 60_000, max_messages=2, filter=ALL))
    put = await tool.told(315, statsName="TOPIC_PUT_NUMS", statsKey="t")
    assert (put["statsMinute"]["sum"], put["statsHour"]["sum"], put["statsDay"]["sum"]) == (2, 2, 2)
    size = (await tool.told(315, statsName="TOPIC_PUT_SIZE", statsKey="t"))["statsDay"]
    assert size["avgpt"] == size["sum"] / 2 > 50
    got = await tool.told(315, statsName="GROUP_GET_NUMS", statsKey="t@g")
    assert got["statsDay"]["sum"] == 2
    assert (await tool.told(315, statsName="BROKER_GET_NUMS", statsKey="DefaultCluster"))["statsDay"]["sum"] == 2
    assert (await tool.told(315, statsName="GROUP_GET_NUMS", statsKey="t@nobody"))["statsDay"]["sum"] == 0


async def test_a_statistic_that_there_is_not_or_that_is_counted_with_others_is_refused(
    tool: Tool, servers: Servers
) -> None:
    assert (await tool.ask(315, statsName="QUEUE_PUT_NUMS", statsKey="t")).code == 22
    assert (await tool.ask(315, statsName="TOPIC_PUT", statsKey="t")).code == 22
    servers.broker.maintenance.statistics.incoming = Counters(statistics.Incoming, 1)
    await send(servers, b"a")
    await send(servers, b"a", topic="u")
    assert (await tool.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="t")).code == 0
    assert (await tool.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="u")).code == 22


async def test_settings_are_told_by_rocketmqs_names_and_some_are_changed(tool: Tool, servers: Servers) -> None:
    told = decode_java_properties((await tool.ask(26)).body)
    assert (told["brokerName"], told["fileReservedTime"]) == ("broker-a", "72")
    assert Path(told["storePathRootDir"]) == servers.broker.directory
    change = b"fileReservedTime=1\nautoCreateSubscriptionGroup=false\ndiskMaxUsedSpaceRatio=60\nbrokerName=broker-a\n"
    assert (await tool.ask(25, change)).code == 0
    assert servers.broker.maintenance.store.retention.keep_ms == 3_600_000
    assert servers.broker.maintenance.store.retention.scarce_used_ratio == 0.6
    told = decode_java_properties((await tool.ask(26)).body)
    assert (told["fileReservedTime"], told["autoCreateSubscriptionGroup"]) == ("1", "false")


@pytest.mark.parametrize(
    ("change", "label"),
    [
        (b"fileReservedTime=0", "MS-2322"),
        (b"fileReservedTime=a", "MS-2322"),
        (b"brokerPermission=0", "MS-2322"),
        (b"autoCreateSubscriptionGroup=yes", "MS-2322"),
        (b"fileReservedTime=2\nbrokerName=other", "MS-2321"),
        (b"fileReservedTime=2\nnoSuchSetting=1", "MS-2320"),
    ],
)
async def test_of_a_change_with_one_bad_setting_nothing_is_done(
    tool: Tool, servers: Servers, change: bytes, label: str
) -> None:
    answer = await tool.ask(25, change)
    assert answer.code == 29
    assert label in str(answer.remark)
    assert servers.broker.maintenance.store.retention.keep_ms == 72 * 3_600_000


async def test_a_broker_whose_permission_is_to_read_takes_no_message_until_it_is_changed_back(
    tool: Tool, servers: Servers
) -> None:
    await send(servers, b"a")
    assert (await tool.ask(25, b"brokerPermission=4")).code == 0
    assert decode_java_properties((await tool.ask(26)).body)["brokerPermission"] == "4"
    with pytest.raises(NameRefused):
        await send(servers, b"b")
    assert (await tool.ask(25, b"brokerPermission=6")).code == 0
    await send(servers, b"b")


@pytest.mark.parametrize("code", [306, 316, 329])
async def test_cleaning_is_done_at_once_and_takes_nothing_that_is_to_stay(
    tool: Tool, servers: Servers, code: int
) -> None:
    await send(servers, b"a")
    assert (await tool.ask(code)).code == 0
    assert (await tool.told(202, topic="t"))["offsetTable"]
    assert servers.broker.maintenance.store.max_offset("t", 0) == 1
