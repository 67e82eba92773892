"""The permissions that each request code of a broker needs, as in RocketMQ's access control 2.0 where it has one.

Stricter than RocketMQ: users and policies are for super users alone, because who may write them may do everything, and
a record by its log offset needs the right to all topics, because the request does not say which one it is of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.broker.remoting.tools import TOOL_NEEDS
from millstream.model.light_queue import is_light_queue, light_queue
from millstream.protocol.remoting.administration.assignment import AssignmentQuery, RequestModeBody
from millstream.protocol.remoting.administration.dead_letters import decode_dead_letter_query
from millstream.protocol.remoting.administration.settings import decode_group, decode_groups
from millstream.protocol.remoting.bodies import CheckClientBody, HeartbeatData, TopicConfigList, decode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import LockBody
from millstream.protocol.remoting.messages.popping import decode_batch_ack, topic_of_request
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource, ResourceKind
from millstream.transport.gate import Needs, everything, reader, topic_field

__all__ = ["BROKER_NEEDS"]

_READ: Final = (Action.SUB, Action.GET)
_SESSIONS: Final = light_queue("mqtt-")


def _publish(field: str) -> Needs:
    return lambda command: (RequiredAccess.publish(command.ext.get(field, "")),)


def _group_field(field: str, *actions: Action) -> Needs:
    def needs(command: RemotingCommand) -> tuple[RequiredAccess, ...]:
        name = command.ext.get(field, "")
        return (RequiredAccess(Resource.group(name), actions),) if name else ()

    return needs


def _heartbeat(command: RemotingCommand) -> Iterable[RequiredAccess]:
    for consumer in decode_body(HeartbeatData, command.body).consumer_data_set:
        yield RequiredAccess.consume(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            # Who pops subscribes to the group's retry topic for the topic as well.
            yield RequiredAccess.read(topic_of_request(consumer.group_name, subscription.topic))


def _check_client(command: RemotingCommand) -> Iterable[RequiredAccess]:
    body = decode_body(CheckClientBody, command.body)
    if body.group:
        yield RequiredAccess.consume(body.group)
    yield RequiredAccess.read(body.subscription_data.topic)


def _put_topic(command: RemotingCommand) -> Iterable[RequiredAccess]:
    topic = Resource.topic(command.ext.get("topic", ""))
    yield RequiredAccess(topic, (Action.CREATE,))
    if command.ext.get("createOnly") != "true":
        yield RequiredAccess(topic, (Action.UPDATE,))


def _put_topics(command: RemotingCommand) -> Iterable[RequiredAccess]:
    for data in decode_body(TopicConfigList, command.body).topic_config_list:
        yield RequiredAccess(Resource.topic(data.topic_name), (Action.CREATE,))
        yield RequiredAccess(Resource.topic(data.topic_name), (Action.UPDATE,))


def _put_group(command: RemotingCommand) -> Iterable[RequiredAccess]:
    group = Resource.group(decode_group(command.body).name)
    yield RequiredAccess(group, (Action.CREATE,))
    if command.ext.get("createOnly") != "true":
        yield RequiredAccess(group, (Action.UPDATE,))


def _put_groups(command: RemotingCommand) -> Iterable[RequiredAccess]:
    for group in decode_groups(command.body, lambda _name: None):
        yield RequiredAccess(Resource.group(group.name), (Action.CREATE,))
        yield RequiredAccess(Resource.group(group.name), (Action.UPDATE,))


def _progress(command: RemotingCommand) -> Iterable[RequiredAccess]:
    yield RequiredAccess(Resource.group(command.ext.get("consumerGroup", "")), _READ)
    for topic in filter(None, (command.ext.get("topic"), *command.ext.get("topicList", "").split(";"))):
        yield RequiredAccess(Resource.topic(topic), _READ)


def _reset(command: RemotingCommand) -> Iterable[RequiredAccess]:
    yield RequiredAccess(Resource.group(command.ext.get("group", "")), (Action.UPDATE, Action.SUB))
    yield RequiredAccess(Resource.topic(command.ext.get("topic", "")), (Action.UPDATE, Action.SUB))


def _dead_letters(command: RemotingCommand) -> Iterable[RequiredAccess]:
    query, _ = decode_dead_letter_query(command.body)
    yield RequiredAccess.consume(query.group)


def _redrive(command: RemotingCommand) -> Iterable[RequiredAccess]:
    query, target = decode_dead_letter_query(command.body)
    yield RequiredAccess.consume(query.group)
    # Without a target each letter says where it came from, and who may write letters could write anything there.
    yield (
        RequiredAccess(Resource(ResourceKind.TOPIC, None), (Action.PUB,))
        if target is None
        else RequiredAccess.publish(target)
    )


def _send_back(command: RemotingCommand) -> Iterable[RequiredAccess]:
    yield RequiredAccess.consume(command.ext.get("group", ""))
    if command.ext.get("originTopic"):
        yield RequiredAccess.read(command.ext["originTopic"])


def _status(command: RemotingCommand) -> Iterable[RequiredAccess]:
    yield RequiredAccess(Resource.group(command.ext.get("group", "")), _READ)
    yield RequiredAccess(Resource.topic(command.ext.get("topic", "")), _READ)


def _consume_directly(command: RemotingCommand) -> Iterable[RequiredAccess]:
    yield RequiredAccess.consume(command.ext.get("consumerGroup", ""))
    if command.ext.get("topic"):
        yield RequiredAccess.read(command.ext["topic"])


def _lock(command: RemotingCommand) -> Iterable[RequiredAccess]:
    body = decode_body(LockBody, command.body)
    yield RequiredAccess.consume(body.consumer_group)
    for topic in {queue.topic for queue in body.mq_set}:
        yield RequiredAccess.read(topic)


def _read_place(topic: str) -> Iterable[RequiredAccess]:
    """The right to read a topic. A light queue is its group's, who may read it with that alone; those of MQTT sessions
    share a group and are for proxies, which see to it that each client has its own."""
    if not is_light_queue(topic):
        yield RequiredAccess.read(topic)
    elif topic.startswith(_SESSIONS):
        yield RequiredAccess(Resource(ResourceKind.CLUSTER, None), (Action.UPDATE,))


def _take(command: RemotingCommand) -> Iterable[RequiredAccess]:
    yield RequiredAccess.consume(command.ext.get("consumerGroup", ""))
    yield from _read_place(command.ext.get("topic", ""))


def _delivery(command: RemotingCommand) -> Iterable[RequiredAccess]:
    group = command.ext.get("consumerGroup", "")
    yield RequiredAccess.consume(group)
    yield from _read_place(topic_of_request(group, command.ext.get("topic", "")))


def _deliveries(command: RemotingCommand) -> Iterable[RequiredAccess]:
    for group, topic in {(request.group, request.topic) for request in decode_batch_ack(command.body)}:
        yield RequiredAccess.consume(group)
        yield from _read_place(topic)


def _assignment(command: RemotingCommand) -> Iterable[RequiredAccess]:
    asked = decode_body(AssignmentQuery, command.body)
    yield RequiredAccess.consume(asked.consumer_group)
    yield RequiredAccess.read(topic_of_request(asked.consumer_group, asked.topic))


def _request_mode(command: RemotingCommand) -> Iterable[RequiredAccess]:
    yield RequiredAccess(Resource.group(decode_body(RequestModeBody, command.body).consumer_group), (Action.UPDATE,))


def _end_transaction(command: RemotingCommand) -> Iterable[RequiredAccess]:
    """Older clients do not name the topic: they show that the message is theirs by its place and producer group."""
    topic = command.ext.get("topic")
    if topic:
        yield RequiredAccess.publish(topic)


BROKER_NEEDS: Final[dict[int, Needs]] = {
    **TOOL_NEEDS,
    RequestCode.SEND_MESSAGE: _publish("topic"),
    RequestCode.SEND_MESSAGE_V2: _publish("b"),
    RequestCode.SEND_BATCH_MESSAGE: _publish("b"),
    RequestCode.BULK_PUT: _publish("topic"),
    RequestCode.RECALL_MESSAGE: _publish("topic"),
    RequestCode.PULL_MESSAGE: reader(Action.SUB),
    RequestCode.LITE_PULL_MESSAGE: reader(Action.SUB),
    RequestCode.BULK_FETCH: reader(Action.SUB),
    RequestCode.COLD_RANGES: reader(Action.SUB),
    RequestCode.QUERY_MESSAGE: topic_field("topic", *_READ),
    RequestCode.VIEW_MESSAGE_BY_ID: everything(ResourceKind.TOPIC, Action.GET),
    RequestCode.GET_MAX_OFFSET: topic_field("topic", *_READ),
    RequestCode.GET_MIN_OFFSET: topic_field("topic", *_READ),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: topic_field("topic", *_READ),
    RequestCode.GET_EARLIEST_MSG_STORE_TIME: topic_field("topic", *_READ),
    RequestCode.GET_TOPIC_STATS_INFO: topic_field("topic", *_READ),
    RequestCode.QUERY_CONSUMER_OFFSET: reader(*_READ),
    RequestCode.UPDATE_CONSUMER_OFFSET: reader(Action.SUB),
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _group_field("consumerGroup", Action.SUB),
    RequestCode.CHECK_CLIENT_CONFIG: _check_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _group_field("consumerGroup", *_READ),
    RequestCode.GET_SUBSCRIPTION_GROUP_CONFIG: _group_field("group", *_READ),
    RequestCode.GET_CONSUME_STATS: _progress,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _group_field("consumerGroup", *_READ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _reset,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: topic_field("topic", *_READ),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _group_field("group", *_READ),
    RequestCode.LIST_DEAD_LETTERS: _dead_letters,
    RequestCode.REDRIVE_DEAD_LETTERS: _redrive,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _put_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _put_topics,
    RequestCode.GET_TOPIC_CONFIG: topic_field("topic", *_READ),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: everything(ResourceKind.TOPIC, Action.LIST),
    RequestCode.DELETE_TOPIC_IN_BROKER: topic_field("topic", Action.DELETE),
    RequestCode.GET_ALL_TOPIC_CONFIG: everything(ResourceKind.TOPIC, Action.LIST),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP: _put_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP_LIST: _put_groups,
    RequestCode.DELETE_SUBSCRIPTION_GROUP: _group_field("groupName", Action.DELETE),
    RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG: everything(ResourceKind.GROUP, Action.LIST),
    RequestCode.LOCK_BATCH_MQ: _lock,
    RequestCode.UNLOCK_BATCH_MQ: _lock,
    RequestCode.POP_MESSAGE: _take,
    RequestCode.ACK_MESSAGE: _delivery,
    RequestCode.BATCH_ACK_MESSAGE: _deliveries,
    RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME: _delivery,
    RequestCode.PEEK_MESSAGE: _take,
    RequestCode.NOTIFICATION: _take,
    RequestCode.POLLING_INFO: reader(*_READ),
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.SEND_REPLY_MESSAGE: _publish("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _publish("b"),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: topic_field("topic", Action.CREATE),
    RequestCode.SEGMENT_POP: reader(Action.SUB),
    RequestCode.GET_ALL_CONSUMER_OFFSET: everything(ResourceKind.GROUP, Action.LIST),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.GET_ALL_PRODUCER_INFO: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _group_field("consumerGroup", *_READ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    RequestCode.GET_BROKER_REPORT: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.PUT_BROKER_PERMISSION: everything(ResourceKind.CLUSTER, Action.UPDATE),
    RequestCode.GET_COLD_STATUS: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.VERIFY_COLD_OBJECTS: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.COLLECT_ORPHANS: everything(ResourceKind.CLUSTER, Action.UPDATE),
}
"""Request code -> what it needs. The codes about users and policies and those that only proxies ask have no row: they
are for super users."""
