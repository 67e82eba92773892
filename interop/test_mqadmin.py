"""RocketMQ's admin tool (5.3.3), unmodified: what it prints of a server, and what it changes in it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop.admin_tool import AdminTool, rows
from interop.driver import Missing
from interop.server import Server
from millstream.client.blocking import BlockingClient
from millstream.model.group import GroupConfig

CLUSTER = "DefaultCluster"
COMMIT_WAIT_S = 30.0
"""How long a Java consumer takes at most to begin and to commit (every 5 s)."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def tool(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminTool]:
    try:
        started = AdminTool(server.nameserver, tmp_path_factory.mktemp("mqadmin") / "home")
    except Missing as missing:
        pytest.skip(f"mqadmin cannot run here: {missing}")
    with started:
        yield started


@pytest.fixture
def broker(server: Server) -> str:
    return server.broker


@pytest.fixture
def topic(tool: AdminTool) -> str:
    """A topic of two queues, made by the tool."""
    name = f"mq{next(_numbers)}"
    assert "success" in tool.done("updateTopic", c=CLUSTER, t=name, r=2, w=2)
    return name


@pytest.fixture
def group(tool: AdminTool) -> str:
    name = f"mqg{next(_numbers)}"
    assert "success" in tool.done("updateSubGroup", c=CLUSTER, g=name)
    return name


def until(shown: Callable[[], str], words: str) -> str:
    """What is shown once the words are in it."""
    give_up_s = time.monotonic() + COMMIT_WAIT_S
    while words not in (printed := shown()):
        assert time.monotonic() < give_up_s, printed
        time.sleep(0.5)
    return printed


def settings(printed: str) -> dict[str, str]:
    """The lines `name = value` of what is printed."""
    parts = (line.partition("=") for line in printed.splitlines())
    return {name.strip(): value.strip() for name, sign, value in parts if sign}


def test_clusters_and_brokers_are_listed_with_version_and_rates(tool: AdminTool, broker: str) -> None:
    [row] = rows(tool.done("clusterList"))
    assert (row[0], row[1], row[2], row[3]) == (CLUSTER, "broker-a", "0", broker)
    assert row[4].startswith("MILLSTREAM_")
    assert row[-1] == "true"
    [totals] = rows(tool.done("clusterList", m=True))
    assert all(number.isdigit() for number in totals[2:])
    status = dict(line.split(":", 1) for line in tool.done("brokerStatus", b=broker).splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in status.items()}
    assert fields["brokerActive"] == "true"
    assert float(fields["commitLogDiskRatio"]) < 1
    assert len(fields["putTps"].split()) == 3


def test_a_topic_is_made_changed_shown_and_deleted(tool: AdminTool, broker: str, topic: str) -> None:
    assert topic in tool.done("topicList").split()
    tool.done("updateTopic", b=broker, t=topic, r=4, w=3, p=6, a="+message.type=FIFO")
    route = tool.done("topicRoute", t=topic)
    assert ('"readQueueNums":4' in route, '"writeQueueNums":3' in route) == (True, True)
    assert "from 6 to 4" in tool.done("updateTopicPerm", c=CLUSTER, t=topic, p=4)
    assert '"perm":4' in tool.done("topicRoute", t=topic)
    assert len(rows(tool.done("topicStatus", t=topic).split("Topic Put")[0])) == 4
    assert tool.done("topicClusterList", t=topic).split() == [CLUSTER]
    assert "MS-2324" in tool.refused("updateTopic", c=CLUSTER, t=topic, a="+cleanup.policy=COMPACTION")
    tool.done("deleteTopic", c=CLUSTER, t=topic)
    assert topic not in tool.done("topicList").split()


def test_topics_and_groups_are_made_from_files(tool: AdminTool, broker: str, tmp_path: Path) -> None:
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text(json.dumps([{"topicName": "mqlist", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]))
    groups.write_text(json.dumps([{"groupName": "mqlistg", "retryMaxTimes": 3, "consumeMessageOrderly": True}]))
    tool.done("updateTopicList", b=broker, f=topics)
    tool.done("updateSubGroupList", b=broker, f=groups)
    assert '"readQueueNums":2' in tool.done("topicRoute", t="mqlist")
    assert settings(tool.done("getConsumerConfig", g="mqlistg"))["retryMaxTimes"] == "3"


def test_an_ordered_topic_has_its_queues_order_in_the_route(tool: AdminTool, topic: str) -> None:
    tool("updateTopic", c=CLUSTER, t=topic, r=2, w=2, o="true")
    assert '"orderTopicConf":"broker-a:2"' in tool.done("topicRoute", t=topic)
    tool.done("updateOrderConf", m="put", t=topic, v="broker-a:1")
    assert "orderConf=[broker-a:1]" in tool.done("updateOrderConf", m="get", t=topic)
    tool.done("updateOrderConf", m="delete", t=topic)
    assert "orderTopicConf" not in tool.done("topicRoute", t=topic)
    tool.done("updateKvConfig", s="mine", k="a", v="1")
    tool.done("deleteKvConfig", s="mine", k="a")


def test_all_settings_of_a_group_are_told_as_they_were_given(tool: AdminTool) -> None:
    given = {"s": "true", "m": "false", "d": "false", "o": "true", "q": 2, "r": 4, "i": 0, "w": 1, "a": "false"}
    tool.done("updateSubGroup", c=CLUSTER, g="mqwhole", **given)
    told = settings(tool.done("getConsumerConfig", g="mqwhole"))
    assert (told["consumeEnable"], told["consumeFromMinEnable"], told["consumeBroadcastEnable"]) == (
        "true", "false", "false",
    )  # fmt: skip
    assert (told["consumeMessageOrderly"], told["retryQueueNums"], told["retryMaxTimes"]) == ("true", "2", "4")
    assert told["notifyConsumerIdsChangedEnable"] == "false"
    tool.done("deleteSubGroup", c=CLUSTER, g="mqwhole", r="true")
    assert "groupName" not in tool("getConsumerConfig", g="mqwhole")


def test_messages_are_found_by_key_by_both_ids_and_by_offset(tool: AdminTool, broker: str, topic: str) -> None:
    [first, _] = tool.produce("mqp", topic, "one", "two")
    assert rows(tool.done("queryMsgByKey", t=topic, k="key-one"))[0][0] == first["msgId"]
    found = tool.done("queryMsgByUniqueKey", t=topic, i=first["msgId"])
    assert "[key-one]" in found
    assert "[key-one]" in tool.done("queryMsgById", t=topic, i=first["offsetMsgId"])
    queue_id = first["messageQueue"]["queueId"]
    assert "[key-one]" in tool.done("queryMsgByOffset", t=topic, b="broker-a", i=queue_id, o=0)
    assert "BODY: one" in tool.done("printMsg", t=topic)
    assert "physicOffset" in tool.done("queryCq", t=topic, q=queue_id, i=0, c=1, b=broker)
    assert "code 17" in tool("queryMsgByKey", t="nothing", k="x").lower().replace(":", "")


def test_a_traced_message_tells_its_way(tool: AdminTool, topic: str) -> None:
    [sent] = tool.produce("mqp", topic, "traced")
    printed = until(lambda: tool("queryMsgTraceById", i=sent["msgId"]), "Pub")
    assert "success" in printed


def test_the_tool_sends_and_measures(tool: AdminTool, topic: str) -> None:
    sent = tool.done("sendMessage", t=topic, p="hello", k="sent-by-tool", c="blue")
    assert "SEND_OK" in sent
    assert rows(tool.done("checkMsgSendRT", t=topic, a=2, s=16))[0][2] == "true"
    assert "SEND_OK" in tool.done("sendMsgStatus", b="broker-a", s=16, c=1)
    sums = until(lambda: tool.done("statsAll", t=topic), "NO_CONSUMER")
    assert rows(sums)[0][0] == topic
    assert int(rows(sums)[0][-2]) == 3


def test_a_group_is_shown_with_its_members_and_how_far_it_is(
    tool: AdminTool, broker: str, topic: str, group: str
) -> None:
    tool.produce("mqp", topic, "a", "b", "c")
    tool.consume(group, topic)
    members = until(lambda: tool("consumerConnection", g=group), "Below is subscription")
    assert "V5_3_3" in members
    assert "CONSUME_FROM_FIRST_OFFSET" in members

    def consumed() -> str:
        told = [row for row in rows(tool("consumerProgress", g=group, t=topic)) if row[0] == topic]
        return f"consumed {sum(int(row[4]) for row in told)}"

    until(consumed, "consumed 3")
    assert "Consume Diff Total: 0" in tool.done("consumerProgress", g=group)
    assert group in until(lambda: tool.done("consumerProgress"), group)
    assert "Rebalance OK" in tool.done("consumerStatus", g=group)
    assert "Diff Total: " in tool.done("brokerConsumeStats", b=broker)
    row = rows(tool.done("statsAll", t=topic))[0]
    assert (row[1], int(row[2]), int(row[-1])) == (group, 0, 3)
    tool.done("cloneGroupOffset", s=group, d=f"{group}twin", t=topic, o="true")
    assert "Consume Diff Total: 0" in tool.done("consumerProgress", g=f"{group}twin")


def test_a_static_topic_is_made_and_written(tool: AdminTool) -> None:
    tool.done("updateStaticTopic", t="mqstatic", qn=4, c=CLUSTER)
    tool.produce("mqp", "mqstatic", "a")
    queues = rows(tool.done("topicStatus", t="mqstatic").split("Topic Put")[0])
    # The tool shows each queue twice: as a logic one, and as the broker's own that holds its messages.
    logic = [queue for queue in queues if queue[0] == "__syslo__global__"]
    assert (len(logic), sum(int(queue[3]) for queue in logic)) == (4, 1)


def test_producers_are_shown(tool: AdminTool, broker: str, topic: str) -> None:
    tool.produce("mqshown", topic, "a")
    assert "V5_3_3" in until(lambda: tool("producerConnection", g="mqshown", t=topic), "JAVA")
    assert "(mqshown)" in tool.done("producer", b=broker)


def test_the_way_in_which_a_group_gets_messages_is_set(tool: AdminTool, topic: str, group: str) -> None:
    assert "mode[POP]" in tool.done("setConsumeMode", c=CLUSTER, t=topic, g=group, m="POP", q=2)
    assert "mode[PULL]" in tool.done("setConsumeMode", c=CLUSTER, t=topic, g=group, m="PULL", q=0)


def test_a_group_is_reset_and_brought_to_the_end(tool: AdminTool, broker: str, topic: str, group: str) -> None:
    tool.produce("mqp", topic, "a", "b")
    skipped = rows(tool.done("skipAccumulatedMessage", g=group, t=topic))
    assert sum(int(row[-1]) for row in skipped if row[0] == "broker-a") == 2
    assert "Consume Diff Total: 0" in tool.done("consumerProgress", g=group)
    reset = rows(tool.done("resetOffsetByTime", g=group, t=topic, s=0))
    assert sum(int(row[-1]) for row in reset if row[0] == "broker-a") == 0
    assert "Consume Diff Total: 2" in tool.done("consumerProgress", g=group)
    tool.done("resetOffsetByTime", g=group, t=topic, q=0, o=1, b=broker, s=0)
    assert "Consume Diff Total: 1" in tool.done("consumerProgress", g=group)
    tool.done("deleteSubGroup", c=CLUSTER, g=group, r="false")
    tool.done("updateSubGroup", c=CLUSTER, g=group)
    assert "Consume Diff Total: 1" in tool.done("consumerProgress", g=group)


def test_a_group_of_other_clients_is_found_as_well(tool: AdminTool, server: Server, topic: str) -> None:
    with BlockingClient(server.nameserver) as client:
        client.create_group(GroupConfig("mqgrpc"))
    tool.produce("mqp", topic, "a")
    assert "Consume Diff Total: 1" in tool.done("consumerProgress", g="mqgrpc", t=topic)
    assert "mqgrpc" in tool.done("consumerProgress")


def test_settings_are_told_and_some_are_changed(tool: AdminTool, broker: str) -> None:
    assert "brokerClusterName                                 =  DefaultCluster" in tool.done(
        "getBrokerConfig", b=broker
    )
    assert "success" in tool.done("updateBrokerConfig", b=broker, k="fileReservedTime", v=48)
    assert "fileReservedTime                                  =  48" in tool.done("getBrokerConfig", b=broker)
    assert "MS-2320" in tool.refused("updateBrokerConfig", c=CLUSTER, k="nonsense", v=1)
    assert "MS-2321" in tool.refused("updateBrokerConfig", b=broker, k="listenPort", v=1)
    assert settings(tool.done("getNamesrvConfig"))["orderMessageEnable"] == "true"
    assert "MS-2321" in tool.refused("updateNamesrvConfig", k="orderMessageEnable", v="false")


def test_permission_to_write_is_taken_from_routes_and_given_again(tool: AdminTool, topic: str) -> None:
    assert "OK" in tool.done("wipeWritePerm", b="broker-a")
    assert '"perm":4' in tool.done("topicRoute", t=topic)
    assert "OK" in tool.done("addWritePerm", b="broker-a")
    assert '"perm":6' in tool.done("topicRoute", t=topic)


def test_cleaning_leaves_what_is_to_stay(tool: AdminTool, topic: str) -> None:
    tool.produce("mqp", topic, "kept")
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in tool.done(command, c=CLUSTER)
    assert "BODY: kept" in tool.done("printMsg", t=topic)


def test_what_there_is_is_exported(tool: AdminTool, topic: str, group: str, tmp_path: Path) -> None:
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        assert "success" in tool.done(command, c=CLUSTER, f=tmp_path)
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["topicConfigTable"][topic]["readQueueNums"] == 2
    assert group in metadata["subscriptionGroupTable"]
    assert json.loads((tmp_path / "configs.json").read_text())["brokerConfigs"]["broker-a"]["brokerName"] == "broker-a"
    assert (tmp_path / "metrics.json").exists()


def test_queues_are_shared_out_among_clients_as_the_tool_computes_it(tool: AdminTool, topic: str) -> None:
    shares = json.loads(tool.done("allocateMQ", t=topic, i="10.0.0.1,10.0.0.2"))["result"]
    assert [len(queues) for queues in shares.values()] == [1, 1]


@pytest.fixture(scope="module", params=[False, True], ids=["plaintext", "tls"])
def signing(
    guarded: Server, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[AdminTool]:
    """A tool that signs as the super user of the server with access control."""
    assert guarded.credentials is not None
    keys = (guarded.credentials.access_key, guarded.credentials.secret_key)
    home = tmp_path_factory.mktemp("signing") / "home"
    try:
        tool = AdminTool(guarded.nameserver, home, keys=keys, tls=request.param)
    except Missing as missing:
        pytest.skip(f"mqadmin cannot run here: {missing}")
    with tool:
        yield tool


def test_users_and_policies_are_made_shown_changed_and_deleted(signing: AdminTool, guarded: Server) -> None:
    tool, broker = signing, guarded.broker
    tool.done("createUser", c=CLUSTER, u="ann", p="secret-of-ann", t="Normal")
    assert rows(tool.done("getUser", b=broker, u="ann"))[0] == ["ann", "null", "Normal", "enable"]
    tool.done("updateUser", c=CLUSTER, u="ann", s="disable")
    assert ["ann", "null", "Normal", "disable"] in rows(tool.done("listUser", b=broker))
    tool.done("createAcl", c=CLUSTER, s="User:ann", r="Topic:orders,Group:billing", a="Pub,Sub", d="Allow")
    tool.done("updateAcl", c=CLUSTER, s="User:ann", r="Topic:orders", a="Pub", d="Deny", i="10.0.0.0/8")
    [billing, orders] = rows(tool.done("getAcl", b=broker, s="User:ann"))
    assert (billing[2], billing[-1]) == ("Group:billing", "Allow")
    assert orders[2:] == ["Topic:orders", "[Pub]", "[10.0.0.0/8]", "Deny"]
    tool.done("deleteAcl", c=CLUSTER, s="User:ann", r="Topic:orders")
    assert [row[0] for row in rows(tool.done("listAcl", b=broker))].count("User:ann") == 1
    tool.done("deleteUser", c=CLUSTER, u="ann")
    assert "MS-2303" in tool.refused("getUser", b=broker, u="ann")


def test_a_tool_that_does_not_sign_is_refused_by_a_broker_with_access_control(
    guarded: Server, signing: AdminTool, tmp_path: Path
) -> None:
    with AdminTool(guarded.nameserver, tmp_path / "home") as stranger:
        assert "MS-2301" in stranger.refused("updateTopic", c=CLUSTER, t="mine")
