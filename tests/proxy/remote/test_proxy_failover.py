"""A proxy while the master of a broker changes its address."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_set import NAME, BrokerSet, running_set
from contract_ground import outgoing, refused

from millstream.cluster.nameserver import BrokerRegistration
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    PullRequest,
    PullStatus,
    QueuePoint,
)
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.remote import master_watch
from millstream.proxy.remote.backend import RemoteBackend
from patience import eventually, within_patience

POP = PopRequest("g", "orders", 30_000)
LONG_POP = PopRequest("g", "orders", 30_000, wait_ms=50_000)
PATIENT_S = 50.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def brokers(tmp_path: Path, clock: ManualClock) -> AsyncIterator[BrokerSet]:
    async with running_set(tmp_path, clock) as made:
        yield made


@pytest.fixture
async def backend(brokers: BrokerSet, clock: ManualClock) -> AsyncIterator[RemoteBackend]:
    opened = RemoteBackend(brokers.nameserver, clock=clock, failover_s=PATIENT_S)
    await opened.start()
    await opened.send([outgoing("orders")])
    yield opened
    await opened.close()


async def close_master(brokers: BrokerSet, backend: RemoteBackend) -> None:
    """The proxy has seen the connection close: what it asks from now on is surely not done there."""
    await brokers.members[0].server.close()
    await eventually(lambda: backend.masters.doubted)


async def someone_waits(brokers: BrokerSet, member: int = -1) -> None:
    await eventually(lambda: brokers.members[member].broker.maintenance.waiting_requests)


async def doubted(backend: RemoteBackend) -> None:
    await eventually(lambda: backend.masters.doubted)


async def popped(backend: RemoteBackend, request: PopRequest = POP) -> PoppedMessage:
    (one,) = await within_patience(backend.pop(NAME, request))
    return one


@pytest.mark.parametrize("how", ["closed", "replica"])
async def test_a_send_waits_for_the_new_master_and_is_stored_once(
    brokers: BrokerSet, backend: RemoteBackend, how: str
) -> None:
    if how == "closed":
        await close_master(brokers, backend)
    else:
        brokers.members[0].demote()
    sending = asyncio.create_task(backend.send([outgoing("orders")]))
    await doubted(backend)
    assert not sending.done()
    await brokers.fail_over()
    (receipt,) = await within_patience(sending)
    assert (receipt.queue_offset, brokers.stored()) == (1, 2)


async def test_a_send_whose_connection_closed_is_not_sent_to_the_new_master(
    brokers: BrokerSet, backend: RemoteBackend
) -> None:
    old = brokers.members[0]
    new = await brokers.add(old.broker)
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        old.lose_answers(code)
    brokers.elect(new)
    assert await refused(within_patience(backend.send([outgoing("orders")]))) == "UNREACHABLE"
    assert brokers.stored() == 2


async def test_a_send_that_timed_out_is_not_sent_to_the_new_master(
    brokers: BrokerSet, backend: RemoteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.proxy.remote.connection_pool.ASK_TIMEOUT_S", 0.2)
    brokers.members[0].hang()
    await brokers.fail_over()
    assert await refused(within_patience(backend.send([outgoing("orders")]))) == "TIMED_OUT"
    assert brokers.stored() == 1


async def test_a_send_without_a_new_master_fails_with_what_the_old_one_said(brokers: BrokerSet) -> None:
    hasty = RemoteBackend(brokers.nameserver, clock=brokers.clock, failover_s=0.1)
    await hasty.send([outgoing("orders")])
    brokers.members[0].demote()
    assert await refused(within_patience(hasty.send([outgoing("orders")]))) == "NOT_MASTER"
    await hasty.close()


async def test_a_failover_is_found_while_no_request_comes(brokers: BrokerSet, backend: RemoteBackend) -> None:
    await brokers.members[0].server.close()
    await doubted(backend)
    new = await brokers.fail_over()
    await eventually(lambda: not backend.masters.doubted)
    known = backend.cached_route("orders")
    assert known is not None
    assert known.addresses == {NAME: new.address}
    assert known.data.broker_datas[0].broker_addrs[0] == new.address


async def test_nobody_asks_the_nameservers_while_all_is_well(brokers: BrokerSet, backend: RemoteBackend) -> None:
    before = len(brokers.asked)
    for _ in range(3):
        await backend.send([outgoing("orders")])
        await backend.pop(NAME, POP)
    assert set(brokers.asked[before:]) == set()
    assert backend.masters._watching is None


async def test_a_broker_that_fails_and_answers_in_turn_does_not_flood_the_nameservers(
    brokers: BrokerSet, backend: RemoteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_watch, "LEAST_INTERVAL_S", 1000.0)
    before = len(brokers.asked)
    for _ in range(50):
        backend.masters.doubt(brokers.members[0].address)
        await asyncio.sleep(0.002)
        backend.masters.trust(brokers.members[0].address)
    assert len(brokers.asked) - before <= 1


async def test_a_master_that_answers_again_is_watched_no_longer(brokers: BrokerSet, backend: RemoteBackend) -> None:
    old = brokers.members[0]
    old.demote()
    sending = asyncio.create_task(backend.send([outgoing("orders")]))
    await doubted(backend)
    old.serve()
    await within_patience(sending)
    assert not backend.masters.doubted
    await within_patience(backend.masters._watching)  # type: ignore[arg-type]


async def test_a_handle_of_the_old_master_is_good_at_the_new_one(brokers: BrokerSet, backend: RemoteBackend) -> None:
    one = await popped(backend)
    await close_master(brokers, backend)
    acking = asyncio.create_task(backend.ack(AckRequest("g", "orders", one.handle)))
    await doubted(backend)
    new = await brokers.fail_over()
    await within_patience(acking)
    assert new.broker.queues.committed_offset("g", "orders", 0) == 1


async def test_a_handle_that_the_new_master_does_not_know_is_refused_and_the_message_comes_again(
    brokers: BrokerSet, backend: RemoteBackend
) -> None:
    one = await popped(backend)
    new = await brokers.add()
    await close_master(brokers, backend)
    brokers.elect(new)
    await within_patience(backend.send([outgoing("orders", b"copy")]))
    assert (
        await refused(within_patience(backend.ack(AckRequest("g", "orders", one.handle)))) == "INVALID_RECEIPT_HANDLE"
    )
    change = ChangeInvisibleRequest("g", "orders", one.handle, 60_000)
    assert await refused(within_patience(backend.change_invisible(change))) == "INVALID_RECEIPT_HANDLE"
    again = await popped(backend)
    assert again.message.body == b"copy"
    await backend.ack(AckRequest("g", "orders", again.handle))


@pytest.mark.parametrize("how", ["closed", "silent", "replica"])
async def test_a_long_poll_at_the_old_master_gets_what_is_sent_to_the_new_one(
    brokers: BrokerSet, backend: RemoteBackend, how: str
) -> None:
    one = await popped(backend)
    await backend.ack(AckRequest("g", "orders", one.handle))
    waiting = asyncio.create_task(backend.pop(NAME, LONG_POP))
    await someone_waits(brokers)
    old = brokers.members[0]
    new = await brokers.add()
    if how == "closed":
        await old.server.close()
    else:
        old.demote() if how == "replica" else old.hang()
        with pytest.raises((MillstreamError, TimeoutError)):
            async with asyncio.timeout(0.6):
                await backend.find_offset(NAME, "orders", 0, QueuePoint.LAST)
    brokers.elect(new)
    await someone_waits(brokers)
    await within_patience(backend.send([outgoing("orders", b"new")]))
    (found,) = await within_patience(waiting)
    assert found.message.body == b"new"


async def test_a_long_poll_leaves_a_silent_master_when_its_route_is_refreshed(
    brokers: BrokerSet, backend: RemoteBackend
) -> None:
    one = await popped(backend)
    await backend.ack(AckRequest("g", "orders", one.handle))
    waiting = asyncio.create_task(backend.pop(NAME, LONG_POP))
    await someone_waits(brokers)
    brokers.members[0].hang()
    brokers.elect(await brokers.add())
    await backend._routes.refresh_all()
    await within_patience(backend.send([outgoing("orders", b"new")]))
    (found,) = await within_patience(waiting)
    assert found.message.body == b"new"


async def test_a_long_poll_that_lost_its_master_ends_empty_where_no_other_one_comes(
    brokers: BrokerSet, backend: RemoteBackend
) -> None:
    one = await popped(backend)
    await backend.ack(AckRequest("g", "orders", one.handle))
    waiting = asyncio.create_task(backend.pop(NAME, PopRequest("g", "orders", 30_000, wait_ms=700)))
    await someone_waits(brokers)
    await brokers.members[0].server.close()
    assert await within_patience(waiting) == []


async def test_a_long_poll_that_reached_no_master_says_so(brokers: BrokerSet, backend: RemoteBackend) -> None:
    brokers.members[0].demote()
    request = PopRequest("g", "orders", 30_000, wait_ms=300)
    assert await refused(within_patience(backend.pop(NAME, request))) == "NOT_MASTER"


async def test_a_pull_that_waits_goes_on_at_the_new_master(brokers: BrokerSet, backend: RemoteBackend) -> None:
    pulling = asyncio.create_task(backend.pull(NAME, PullRequest("g", "orders", 0, 1, wait_ms=50_000)))
    await someone_waits(brokers)
    await brokers.members[0].server.close()
    await brokers.fail_over()
    await within_patience(backend.send([outgoing("orders")]))
    result = await within_patience(pulling)
    assert (result.status, len(result.records)) == (PullStatus.FOUND, 1)


async def test_an_offset_whose_answer_was_lost_is_committed_again(brokers: BrokerSet, backend: RemoteBackend) -> None:
    old = brokers.members[0]
    new = await brokers.add(old.broker)
    await backend.group("g")
    old.lose_answers(RequestCode.UPDATE_CONSUMER_OFFSET)
    brokers.elect(new)
    await within_patience(backend.commit_offset(NAME, "g", "orders", 0, 1))
    assert await backend.group_offset(NAME, "g", "orders", 0) == 1


async def test_a_send_of_a_remoting_client_is_passed_on_to_the_new_master(
    brokers: BrokerSet, backend: RemoteBackend
) -> None:
    ext = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "bname": NAME}
    command = RemotingCommand(RequestCode.GET_MAX_OFFSET, ext)
    brokers.members[0].demote()
    passing = asyncio.create_task(backend.passage.to_queue("orders", NAME, command))
    await doubted(backend)
    await brokers.fail_over()
    assert (await within_patience(passing)).ext["offset"] == "1"


async def test_a_set_that_elects_its_master_keeps_its_queues_in_the_route(
    brokers: BrokerSet, backend: RemoteBackend
) -> None:
    old = brokers.members[0]
    replica = BrokerRegistration("c", NAME, "127.0.0.1:1", tuple(old.broker.topics.all()), broker_id=2)
    brokers.routes.register(replica, lease_s=math.inf)
    await close_master(brokers, backend)
    brokers.routes.unregister(NAME)
    sending = asyncio.create_task(backend.send([outgoing("orders")]))
    for _ in range(2):
        await backend._routes.refresh_all()
        brokers.clock.advance_ms(61_000)
    assert [queue.broker_name for queue in (await backend.route("orders")).queues] == [NAME]
    await brokers.fail_over()
    await within_patience(sending)
