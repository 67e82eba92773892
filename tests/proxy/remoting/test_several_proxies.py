"""Clients of one group, or of one transaction, at several proxies before the same brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract_ground import running_site
from front_ground import Front, Peer, bodies, running_front

from millstream.broker.queues.queue_locks import LOCK_LIMIT_S
from millstream.model.clock import ManualClock
from millstream.model.message import Address
from millstream.model.properties import encode_properties
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import LockBody, LockedBody, QueueName
from millstream.proxy.remote import forwarded_clients as told_clients
from millstream.proxy.remoting import queue_sharing
from millstream.transport.remoting_client import RemotingConnection
from patience import eventually

ACTIVELY = "CONSUME_ACTIVELY"


@pytest.fixture
async def fronts(tmp_path: Path) -> AsyncIterator[tuple[Front, Front]]:
    """Two proxies before two brokers."""
    clock = ManualClock()
    async with running_site(tmp_path, clock, 2) as site:
        site.create(TopicConfig("orders", read_queues=2, write_queues=2))
        async with running_front(site, clock) as one, running_front(site, clock) as other:
            yield one, other


async def beside(front: Front, client_id: str) -> Peer:
    """A client of the first broker that knows no proxy."""
    address = Address("127.0.0.1", front.site.servers[0].port)
    return Peer(await RemotingConnection.open(address), client_id)


def notices(peer: Peer) -> int:
    return sum(command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for command in peer.heard)


async def test_members_at_two_proxies_share_one_list_and_hear_of_each_other(fronts: tuple[Front, Front]) -> None:
    one, other = await fronts[0].connect("c1"), await fronts[1].connect("c2")
    await one.join("readers", "orders", kind=ACTIVELY)
    heard = notices(one)
    await other.join("readers", "orders", kind=ACTIVELY)
    assert await one.members("readers") == await other.members("readers") == ["c1", "c2"]
    await eventually(lambda: notices(one) > heard)
    heard = notices(one)
    await other.ask(RequestCode.UNREGISTER_CLIENT, clientID="c2", consumerGroup="readers")
    assert await one.members("readers") == ["c1"]
    await eventually(lambda: notices(one) > heard)


async def test_members_beside_a_proxy_share_the_same_list(fronts: tuple[Front, Front]) -> None:
    one = await fronts[0].connect("c1")
    await one.join("readers", "orders", kind=ACTIVELY)
    direct = await beside(fronts[0], "c3")
    try:
        await direct.join("readers", "orders", kind=ACTIVELY)
        assert await one.members("readers") == await direct.members("readers") == ["c1", "c3"]
    finally:
        await direct.connection.close()


async def test_two_members_at_two_proxies_never_hold_one_queue(fronts: tuple[Front, Front]) -> None:
    one, other = await fronts[0].connect("o1"), await fronts[1].connect("o2")
    await one.join("ordered", "orders")
    await other.join("ordered", "orders")
    assert await one.lock("ordered") == 2
    assert await other.lock("ordered") == 0
    assert await one.members("ordered") == await other.members("ordered") == ["o1", "o2"]
    queues = [QueueName("orders", "broker-a", 0)]
    await one.ask(RequestCode.UNLOCK_BATCH_MQ, encode_body(LockBody("ordered", "o1", queues)))
    assert await other.lock("ordered") == 1


async def test_a_member_that_says_farewell_leaves_its_queues_at_once(fronts: tuple[Front, Front]) -> None:
    one, other = await fronts[0].connect("o1"), await fronts[1].connect("o2")
    for peer in (one, other):
        await peer.join("ordered", "orders")
    assert await one.lock("ordered") == 2
    await one.ask(RequestCode.UNREGISTER_CLIENT, clientID="o1", consumerGroup="ordered")
    assert await other.lock("ordered") == 2


@pytest.mark.parametrize("ends", ["connection", "proxy"])
async def test_a_member_whose_connection_or_proxy_ends_keeps_what_it_may_still_consume(
    fronts: tuple[Front, Front], ends: str
) -> None:
    clock = fronts[0].clock
    other = await fronts[1].connect("o2")
    async with running_front(fronts[0].site, clock) as doomed:
        one = await doomed.connect("o1")
        for peer in (one, other):
            await peer.join("ordered", "orders")
        assert await one.lock("ordered") == 2
        if ends == "connection":
            await one.connection.close()
            await eventually(lambda: not doomed.remoting.clients.consumers.clients("ordered"))
    assert await other.lock("ordered") == 0
    again = await fronts[0].connect("o1")
    await again.join("ordered", "orders")
    assert await again.members("ordered") == ["o1", "o2"], "a proxy that is new to the group learns that it keeps order"
    assert await again.lock("ordered") == 2
    clock.advance_ms(int(LOCK_LIMIT_S * 1000))
    assert await other.lock("ordered") == 2


async def test_a_client_that_moves_to_another_proxy_stays_a_member(fronts: tuple[Front, Front]) -> None:
    before, after = await fronts[0].connect("c1"), await fronts[1].connect("c1")
    await before.join("readers", "orders", kind=ACTIVELY)
    await after.join("readers", "orders", kind=ACTIVELY)
    await before.connection.close()
    await eventually(lambda: not fronts[0].remoting.clients.consumers.clients("readers"))
    await fronts[0].remoting.clients.close()
    assert await after.members("readers") == ["c1"]


async def test_a_broker_that_forgot_everything_hears_of_members_again(fronts: tuple[Front, Front]) -> None:
    one = await fronts[0].connect("c1")
    await one.join("readers", "orders", kind=ACTIVELY)
    backend = fronts[0].backend
    for connection in backend._lanes.client.open_connections().values():
        await connection.close()
    await backend.told.beat()
    other = await fronts[1].connect("c2")
    await other.join("readers", "orders", kind=ACTIVELY)
    assert await other.members("readers") == ["c1", "c2"]


async def test_a_client_that_names_no_brokers_locks_queues_by_their_numbers(fronts: tuple[Front, Front]) -> None:
    old, new = await fronts[0].connect("o1"), await fronts[1].connect("o2")
    old.version = 121
    for peer in (old, new):
        await peer.join("ordered", "orders")
    queues = [QueueName("orders", "proxy", number) for number in range(5)]
    answer = await old.ask(RequestCode.LOCK_BATCH_MQ, encode_body(LockBody("ordered", "o1", queues)))
    assert decode_body(LockedBody, answer.body).locked == queues[:4]
    assert await new.lock("ordered") == 0


async def begin(peer: Peer, broker: str) -> dict[str, object]:
    """Begin a transaction; what an old client says to commit it."""
    held = {"UNIQ_KEY": f"tx-{broker}", "TRAN_MSG": "true", "PGROUP": "makers"}
    sent = await peer.ask(
        RequestCode.SEND_MESSAGE_V2, broker.encode(), a="makers", b="ledger", c="TBW102", d=4, e=0, f=4, g=1, h=0,
        i=encode_properties(held).decode(), j=0, k="false", m="false", n=broker,
    )  # fmt: skip
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    return {
        "producerGroup": "makers", "commitOrRollback": 8, "tranStateTableOffset": sent.ext["queueOffset"],
        "commitLogOffset": int(sent.ext["msgId"][16:], 16), "fromTransactionCheck": "false",
        "msgId": held["UNIQ_KEY"], "transactionId": sent.ext["transactionId"],
    }  # fmt: skip


async def committed(front: Front, number: int) -> int:
    return front.site.brokers[number].maintenance.store.max_offset("ledger", 0)


async def test_a_transaction_ends_at_any_proxy_by_offsets_and_id_alone(fronts: tuple[Front, Front]) -> None:
    fronts[0].site.create(TopicConfig("ledger", MessageType.TRANSACTION, read_queues=1, write_queues=1))
    one, other = await fronts[0].connect("p"), await fronts[1].connect("p")
    first, second = await begin(one, "broker-a"), await begin(one, "broker-b")
    # The brokers are alike, so the offsets alone would name a transaction of each.
    places = [(ending["tranStateTableOffset"], ending["commitLogOffset"]) for ending in (first, second)]
    assert places[0] == places[1]
    ended = await other.ask(RequestCode.END_TRANSACTION, **second)
    assert ended.code == ResponseCode.SUCCESS, ended.remark
    assert (await committed(fronts[0], 0), await committed(fronts[0], 1)) == (0, 1)
    by_name = {**first, "bname": "broker-a"}
    assert (await other.ask(RequestCode.END_TRANSACTION, **by_name)).code == ResponseCode.SUCCESS
    assert (await committed(fronts[0], 0), await committed(fronts[0], 1)) == (1, 1)
    strange = await other.ask(RequestCode.END_TRANSACTION, **{**first, "msgId": "x", "transactionId": "x"})
    assert "MS-" in (strange.remark or "")


async def test_a_broker_asks_a_consumer_at_a_proxy(fronts: tuple[Front, Front]) -> None:
    one = await fronts[0].connect("c1")

    def listen(command: RemotingCommand) -> RemotingCommand | None:
        one.heard.append(command)
        return None if command.is_oneway else command.response(body=b'{"properties":{}}')

    one.connection.listener = listen
    await one.join("readers", "orders", kind=ACTIVELY)
    tool = await beside(fronts[0], "tool")
    try:
        told = await tool.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="readers", clientId="c1")
        assert (told.code, told.body) == (ResponseCode.SUCCESS, b'{"properties":{}}'), told.remark
    finally:
        await tool.connection.close()
    await fronts[0].send(b"1")
    assert bodies((await one.pull(0, group="readers", flags=4))[0]) == [b"1"]


async def test_a_broker_that_hangs_keeps_nobody_from_sharing_queues(
    fronts: tuple[Front, Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await fronts[0].connect("o1"), await fronts[1].connect("o2")
    for peer in (one, other):
        await peer.join("ordered", "orders")
    assert (await one.lock("ordered"), await other.lock("ordered")) == (2, 0)
    monkeypatch.setattr(told_clients, "ANSWER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(queue_sharing, "ANSWER_TIMEOUT_S", 0.5)
    hanging: asyncio.Future[RemotingCommand | None] = asyncio.get_running_loop().create_future()
    server = fronts[0].site.servers[1]
    server.handlers = dict.fromkeys(server.handlers, lambda _command, _connection: hanging)
    assert await other.members("ordered") == ["o1", "o2"]
    assert await one.lock("ordered") == 1
    assert not hanging.done()
    hanging.cancel()


async def test_a_connection_is_of_one_client_at_a_time(fronts: tuple[Front, Front]) -> None:
    peer = await fronts[0].connect("c1")
    for client_id in ("c1", "c2", "c3"):
        peer.client_id = client_id
        await peer.join("readers", "orders", kind=ACTIVELY)
    clients = fronts[0].remoting.clients
    assert clients.connection_of("c1") is clients.connection_of("c2") is None
    assert clients.connection_of("c3") is not None
