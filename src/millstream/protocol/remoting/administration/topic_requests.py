"""Requests about topics, groups and their members. Source of the names: RocketMQ 5.3 (facts only)."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.protocol.remoting.fields import Request, choice_field, flag_field, list_field, number_field, text_field

__all__ = [
    "CorrectionQuery",
    "GroupCreation",
    "GroupDeletion",
    "GroupMembersRequest",
    "GroupQuery",
    "GroupTopic",
    "IndexQuery",
    "MemberQuery",
    "MembersStatus",
    "ProducerMembers",
    "ProgressOfAll",
    "StaticTopicChange",
    "TopicCreation",
    "TopicQuery",
    "TopicStatistics",
    "UnregisteredClient",
]


@dataclass(frozen=True, slots=True)
class TopicQuery(Request):
    """Codes 215, 300 and 351: one topic."""

    topic: str = text_field("topic")


@dataclass(frozen=True, slots=True)
class TopicStatistics(Request):
    """Code 202: what the queues of a topic hold."""

    topic: str = text_field("topic")
    is_logic: bool = flag_field("lo")
    """Whether it means the logic queues of a static topic."""


@dataclass(frozen=True, slots=True)
class TopicCreation(Request):
    """Code 17, beside the topic's settings."""

    topic: str = text_field("topic", "")
    create_only: bool = flag_field("createOnly")
    """Whether a topic with other settings is to be refused."""
    is_physical: bool = flag_field("lo", "false")
    """Whether it means the broker's own queues, also of a static topic."""


@dataclass(frozen=True, slots=True)
class StaticTopicChange(Request):
    """Code 513, beside the topic's settings and its mapping."""

    force: bool = flag_field("force")
    """Whether a mapping is taken that does not follow from the one that is there."""


@dataclass(frozen=True, slots=True)
class GroupQuery(Request):
    """Codes 343 and 352: one group."""

    group: str = text_field("group")
    create: bool = flag_field("create")
    """Whether a group that is missing is to be made, where groups may be made on the fly."""


@dataclass(frozen=True, slots=True)
class GroupTopic(Request):
    """Codes 303 and 345: one group and one topic."""

    group: str = text_field("group")
    topic: str = text_field("topic")


@dataclass(frozen=True, slots=True)
class GroupMembersRequest(Request):
    """Codes 38 and 203: the members of one group."""

    group: str = text_field("consumerGroup")


@dataclass(frozen=True, slots=True)
class ProducerMembers(Request):
    """Code 204: the members of one producer group."""

    group: str = text_field("producerGroup")


@dataclass(frozen=True, slots=True)
class MemberQuery(Request):
    """Codes 307 and 309: one member of a group."""

    group: str = text_field("consumerGroup")
    client_id: str = text_field("clientId")


@dataclass(frozen=True, slots=True)
class MembersStatus(Request):
    """Code 223: what a group's members have of a topic; of all, or of one client id."""

    group: str = text_field("group")
    topic: str = text_field("topic")
    client_id: str | None = choice_field("clientAddr")


@dataclass(frozen=True, slots=True)
class GroupCreation(Request):
    """Code 200, beside its body."""

    create_only: bool = flag_field("createOnly")
    """Whether a group with other settings is to be refused."""


@dataclass(frozen=True, slots=True)
class GroupDeletion(Request):
    """Code 207."""

    group: str = text_field("groupName")
    keeps_offsets: bool = flag_field("cleanOffset", "false")
    """Whether a group of that name goes on where this one is."""
    must_exist: bool = flag_field("mustExist")


@dataclass(frozen=True, slots=True)
class UnregisteredClient(Request):
    """Code 35: a client that leaves its groups."""

    client_id: str = text_field("clientID")
    consumer_group: str = text_field("consumerGroup", "")
    producer_group: str = text_field("producerGroup", "")


@dataclass(frozen=True, slots=True)
class CorrectionQuery(Request):
    """Code 308: the smallest offsets of groups in a topic."""

    topic: str = text_field("topic")
    left_out: tuple[str, ...] = list_field("filterGroups")
    """Groups that do not count."""
    compared: str = text_field("compareGroup", "")
    """The group that is told which queues others are behind it in."""


@dataclass(frozen=True, slots=True)
class ProgressOfAll(Request):
    """Code 317: how far all groups are."""

    only_ordered: bool = flag_field("isOrder")
    """Only in topics that are ordered."""


@dataclass(frozen=True, slots=True)
class IndexQuery(Request):
    """Code 321: entries of a queue as they stand in its index."""

    topic: str = text_field("topic")
    queue_id: int = number_field("queueId")
    first: int = number_field("index")
    """The queue offset of the first one."""
    count: int = number_field("count", 10)
    group: str = text_field("consumerGroup", "")
    """Whose subscription to the topic is told with them."""
