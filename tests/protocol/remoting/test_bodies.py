from __future__ import annotations

import json

import pytest

from millstream.model.errors import MessageRefused
from millstream.model.operations import QueueRange
from millstream.protocol.remoting.bodies import (
    BrokerData,
    HeartbeatData,
    QueueData,
    TopicRouteData,
    decode_body,
    decode_topic_statistics,
    encode_body,
    encode_topic_statistics,
)


def test_a_route_is_written_with_quoted_keys_and_the_names_of_the_protocol() -> None:
    route = TopicRouteData([BrokerData("b", {0: "h:1", 1: "h:2"}, "c")], [QueueData("b", 8, 4, 6)])
    assert json.loads(encode_body(route)) == {
        "brokerDatas": [
            {"brokerAddrs": {"0": "h:1", "1": "h:2"}, "brokerName": "b", "cluster": "c", "enableActingMaster": False}
        ],
        "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 8, "writeQueueNums": 4, "topicSysFlag": 0}],
        "filterServerTable": {},
        "orderTopicConf": None,
    }


def test_a_route_of_an_old_server_with_bare_keys_is_read() -> None:
    route = decode_body(
        TopicRouteData,
        b'{"brokerDatas":[{"brokerAddrs":{0:"h:1"},"brokerName":"b","cluster":"c"}],"queueDatas":'
        b'[{"brokerName":"b","perm":6,"readQueueNums":"4","writeQueueNums":4}],"more":{}}',
    )
    assert route.broker_datas[0].broker_addrs == {0: "h:1"}
    assert route.queue_datas[0].read_queue_nums == 4


def test_a_heartbeat_is_read_by_the_names_of_the_protocol() -> None:
    heartbeat = decode_body(
        HeartbeatData,
        b'{"clientID":"ip@1","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"t","subString":"a||b","tagsSet":["a"],"subVersion":5,"expressionType":"TAG"}]}],'
        b'"heartbeatFingerprint":9,"withoutSub":true}',
    )
    assert (heartbeat.client_id, heartbeat.heartbeat_fingerprint, heartbeat.without_sub) == ("ip@1", 9, True)
    [subscription] = heartbeat.consumer_data_set[0].subscription_data_set
    assert (subscription.topic, subscription.sub_string, subscription.sub_version) == ("t", "a||b", 5)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"brokerDatas":7}', b"\xff\xfe", b"{" * 500])
def test_a_body_that_is_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(MessageRefused) as refused:
        decode_body(TopicRouteData, body)
    assert refused.value.name == "MESSAGE_MALFORMED"


def test_topic_statistics_have_objects_as_keys_and_read_back_sorted() -> None:
    ranges = [QueueRange(1, 0, 0, 0), QueueRange(0, 5, 9, 1700)]
    text = encode_topic_statistics("t", "b", ranges)
    assert text == (
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:{"lastUpdateTimestamp":0,"maxOffset":0,'
        b'"minOffset":0},{"brokerName":"b","queueId":0,"topic":"t"}:{"lastUpdateTimestamp":1700,"maxOffset":9,'
        b'"minOffset":5}},"topicPutTps":0.0}'
    )
    assert [item.range for item in decode_topic_statistics(text)] == ranges[::-1]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"offsetTable":[]}', b'{"offsetTable":{"a":{}}}', b'{"offsetTable":{{"queueId":1}:{}}}']
)
def test_broken_statistics_are_refused(body: bytes) -> None:
    with pytest.raises(MessageRefused):
        decode_topic_statistics(body)
