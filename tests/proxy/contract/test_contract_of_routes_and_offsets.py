"""What backends answer about topics, groups, queues and offsets."""

from __future__ import annotations

import asyncio

from contract_ground import Ground, refused

from millstream.model.filter import parse_tag_filter
from millstream.model.group import GroupConfig
from millstream.model.operations import PullRequest, PullStatus, QueuePoint
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.record import decode_record

BOTH = Permission.READ | Permission.WRITE
BROKER = "broker-a"


async def test_a_route_tells_each_queue_what_may_be_done_with_it(ground: Ground) -> None:
    ground.broker.topics.create(TopicConfig("uneven", MessageType.FIFO, read_queues=1, write_queues=3))
    route = await ground.backend.route("uneven")
    assert [(queue.broker_name, queue.queue_id, queue.permission) for queue in route.queues] == [
        (BROKER, 0, BOTH),
        (BROKER, 1, Permission.WRITE),
        (BROKER, 2, Permission.WRITE),
    ]
    assert (route.topic, route.message_type) == ("uneven", MessageType.FIFO)
    assert await ground.backend.route("uneven") == route


async def test_an_unknown_topic_has_no_route_until_it_is_made(ground: Ground) -> None:
    assert await refused(ground.backend.route("later")) == "TOPIC_NOT_FOUND"
    ground.create("later")
    assert (await ground.backend.route("later")).topic == "later"


async def test_a_group_is_made_when_it_is_first_asked_for(ground: Ground) -> None:
    assert (await ground.backend.group("new")).name == "new"
    assert ground.broker.groups.find("new") is not None


async def test_a_group_is_told_with_all_its_settings(ground: Ground) -> None:
    made = GroupConfig("strict", fifo=True, max_attempts=3, backoff_s=(7, 9))
    ground.broker.groups.create(made)
    assert await ground.backend.group("strict") == made


async def test_a_group_of_an_illegal_name_is_refused(ground: Ground) -> None:
    assert await refused(ground.backend.group("no group")) == "ILLEGAL_GROUP"


async def test_a_pull_reads_what_was_sent_and_says_where_to_go_on(ground: Ground) -> None:
    await ground.send("orders", b"1", b"2", TAGS="a", mine="yes")
    queue_id = next(number for number in (0, 1) if ground.broker.maintenance.store.max_offset("orders", number))
    result = await ground.backend.pull(BROKER, PullRequest("g", "orders", queue_id, 0))
    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (PullStatus.FOUND, 2, 0, 2)
    found = [decode_record(record) for record in result.records]
    assert [(one.body, one.tag, one.user_properties) for one in found] == [
        (b"1", "a", {"mine": "yes"}),
        (b"2", "a", {"mine": "yes"}),
    ]


async def test_a_pull_beyond_the_end_is_told_the_nearest_offset(ground: Ground) -> None:
    result = await ground.backend.pull(BROKER, PullRequest("g", "orders", 0, 7))
    assert (result.status, result.next_offset, result.records) == (PullStatus.OFFSET_ILLEGAL, 0, ())


async def test_a_pull_passes_over_what_its_filter_does_not_want(ground: Ground) -> None:
    await ground.send("orders", b"1", TAGS="a")
    queue_id = next(number for number in (0, 1) if ground.broker.maintenance.store.max_offset("orders", number))
    request = PullRequest("g", "orders", queue_id, 0, filter=parse_tag_filter("b"))
    result = await ground.backend.pull(BROKER, request)
    assert (result.status, result.next_offset, result.records) == (PullStatus.ALL_FILTERED, 1, ())


async def test_a_pull_waits_for_what_is_not_there_yet(ground: Ground) -> None:
    request = PullRequest("g", "orders", 0, 0, wait_ms=20_000)
    pulling = asyncio.create_task(ground.backend.pull(BROKER, request))
    await ground.someone_waits()
    await ground.send("orders", b"late")
    await ground.send("orders", b"late")
    assert [decode_record(record).body for record in (await pulling).records] == [b"late"]


async def test_a_pull_with_nothing_new_comes_back_empty(ground: Ground) -> None:
    result = await ground.backend.pull(BROKER, PullRequest("g", "orders", 0, 0))
    assert (result.status, result.next_offset, result.records) == (PullStatus.NOTHING_NEW, 0, ())


async def test_pulls_that_cannot_be_are_refused_by_name(ground: Ground) -> None:
    pull = ground.backend.pull
    assert await refused(pull(BROKER, PullRequest("g", "missing", 0, 0))) == "TOPIC_NOT_FOUND"
    assert await refused(pull(BROKER, PullRequest("g", "orders", 9, 0))) == "QUEUE_NOT_FOUND"
    assert await refused(pull("broker-z", PullRequest("g", "orders", 0, 0))) == "QUEUE_NOT_FOUND"
    ground.broker.groups.create(GroupConfig("off", enabled=False))
    assert await refused(pull(BROKER, PullRequest("off", "orders", 0, 0))) == "GROUP_DISABLED"
    ground.broker.topics.create(TopicConfig("deaf", permission=Permission.WRITE))
    assert await refused(pull(BROKER, PullRequest("g", "deaf", 0, 0))) == "FORBIDDEN"


async def test_the_places_of_a_queue_have_offsets(ground: Ground) -> None:
    ground.create("single", queues=1)
    for body in (b"1", b"2", b"3"):
        await ground.send("single", body)
        ground.clock.advance_ms(1000)
    find = ground.backend.find_offset
    assert await find(BROKER, "single", 0, QueuePoint.FIRST) == 0
    assert await find(BROKER, "single", 0, QueuePoint.LAST) == 3
    assert await find("", "single", 0, QueuePoint.TIME, ground.clock.now_ms() - 1500) == 2
    assert await find(BROKER, "single", 0, QueuePoint.OFFSET, 3) == 3
    assert await refused(find(BROKER, "single", 0, QueuePoint.OFFSET, 4)) == "ILLEGAL_OFFSET"
    assert await refused(find(BROKER, "single", 9, QueuePoint.FIRST)) == "QUEUE_NOT_FOUND"
    assert await refused(find("broker-z", "single", 0, QueuePoint.FIRST)) == "QUEUE_NOT_FOUND"
    assert await refused(find(BROKER, "missing", 0, QueuePoint.LAST)) == "TOPIC_NOT_FOUND"


async def test_an_offset_that_was_committed_is_the_groups(ground: Ground) -> None:
    backend = ground.backend
    assert await backend.group_offset(BROKER, "g", "orders", 0) is None
    await ground.send("orders", b"1")
    await ground.send("orders", b"2")
    await backend.commit_offset(BROKER, "g", "orders", 0, 1)
    assert await backend.group_offset(BROKER, "g", "orders", 0) == 1


async def test_an_offset_beyond_the_end_of_a_queue_is_refused(ground: Ground) -> None:
    ground.create("single", queues=1)
    await ground.send("single", b"1")
    for offset in (2, (1 << 63) - 1):
        assert await refused(ground.backend.commit_offset(BROKER, "g", "single", 0, offset)) == "ILLEGAL_OFFSET"
    await ground.backend.commit_offset(BROKER, "g", "single", 0, 1)
    assert await ground.backend.group_offset(BROKER, "g", "single", 0) == 1


async def test_offsets_of_what_is_not_there_are_refused(ground: Ground) -> None:
    backend = ground.backend
    assert await refused(backend.group_offset(BROKER, "g", "missing", 0)) == "TOPIC_NOT_FOUND"
    assert await refused(backend.commit_offset(BROKER, "g", "missing", 0, 1)) == "TOPIC_NOT_FOUND"
    assert await refused(backend.commit_offset(BROKER, "g", "orders", 9, 1)) == "QUEUE_NOT_FOUND"
    assert await refused(backend.commit_offset("broker-z", "g", "orders", 0, 1)) == "QUEUE_NOT_FOUND"


async def test_progress_tells_what_is_ready_and_what_is_out_of_sight(ground: Ground) -> None:
    await ground.send("orders", b"a", b"b", b"c")
    assert len(await ground.pop(max_messages=1)) == 1
    found = await ground.backend.progress(BROKER, "g", "orders")
    assert sum(one.ready for one in found) == 2
    assert sum(one.in_flight for one in found) == 1
    assert await refused(ground.backend.progress(BROKER, "g", "missing")) == "TOPIC_NOT_FOUND"
