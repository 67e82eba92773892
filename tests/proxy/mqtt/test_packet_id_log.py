"""Packet identifiers of QoS 2: what many packets change is one record, and each packet hears what became of it."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from millstream.model.errors import ConnectionFailed, MillstreamError, StoreError, Unreachable
from millstream.proxy.mqtt.packet_id_log import PacketIdLog
from millstream.proxy.mqtt.session_records import (
    StoredPacketIds,
    decode_claim,
    decode_packet_ids,
    encode_record,
)
from millstream.proxy.mqtt.session_store import SessionStore
from patience import eventually


class Store:
    """Keeps records; one that is being stored waits until the test lets it go on."""

    def __init__(self) -> None:
        self.records: list[StoredPacketIds] = []
        self.failure: MillstreamError | None = None
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def put_packet_ids(self, client_id: str, packet_ids: StoredPacketIds) -> int:
        self.records.append(decode_packet_ids(encode_record(packet_ids)))
        await self.may_go_on.wait()
        if self.failure is not None:
            raise self.failure
        return len(self.records) - 1


class Log:
    """A log over such a store, and what its packets heard."""

    def __init__(self) -> None:
        self.store = Store()
        self.ids = PacketIdLog(cast("SessionStore", self.store), "device", "claim", StoredPacketIds({7: 5}))
        self.heard: list[tuple[int, str]] = []

    def receive(self, packet_id: int) -> None:
        self.ids.received[packet_id] = 1
        self.ids.note(lambda error: self.heard.append((packet_id, "" if error is None else error.name)))

    async def settle(self) -> None:
        await self.ids.settle()


@pytest.fixture
async def log() -> Log:
    return Log()


async def test_what_packets_of_a_turn_changed_is_one_record_of_which_they_hear_in_their_order(log: Log) -> None:
    for packet_id in (1, 2, 3):
        log.receive(packet_id)
    assert log.heard == []
    await log.settle()
    assert [one.received for one in log.store.records] == [{7: 5, 1: 1, 2: 1, 3: 1}]
    assert log.heard == [(1, ""), (2, ""), (3, "")]


async def test_what_comes_while_a_record_is_stored_is_in_the_next_one(log: Log) -> None:
    log.store.may_go_on.clear()
    log.receive(1)
    await eventually(lambda: log.store.records)
    log.receive(2)
    assert log.heard == []
    log.store.may_go_on.set()
    await log.settle()
    assert [[*one.received] for one in log.store.records] == [[7, 1], [7, 1, 2]]
    assert log.heard == [(1, ""), (2, "")]


async def test_all_hear_of_a_failure_and_the_next_record_is_stored(log: Log) -> None:
    log.store.failure = StoreError("DISK_FULL", "The disk is full.")
    log.receive(1)
    log.receive(2)
    await log.settle()
    log.store.failure = None
    log.receive(3)
    await log.settle()
    assert log.heard == [(1, "DISK_FULL"), (2, "DISK_FULL"), (3, "")]


async def test_one_that_cannot_be_answered_keeps_nobody_else_from_an_answer(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: MillstreamError | None) -> None:
        raise ZeroDivisionError

    log.ids.note(fail)
    log.receive(2)
    await log.settle()
    assert log.heard == [(2, "")]
    assert [(one.levelno, one.exc_info is not None) for one in caplog.records] == [(logging.ERROR, True)]


async def test_who_waits_hears_of_the_end_of_the_proxy(log: Log) -> None:
    log.store.may_go_on.clear()
    log.receive(1)
    await eventually(lambda: log.store.records)
    assert log.ids._writing is not None
    log.ids._writing.cancel()
    await log.settle()
    assert log.heard == [(1, Unreachable("").name)]


async def test_a_write_is_awaited_or_left_alone(log: Log) -> None:
    await log.ids.write()
    log.store.failure = ConnectionFailed("UNREACHABLE", "It is gone.")
    with pytest.raises(ConnectionFailed):
        await log.ids.write()
    log.ids.write()
    await log.settle()


def test_the_claim_is_read_alone_and_of_nothing_else() -> None:
    assert decode_claim(encode_record(StoredPacketIds({9: 1}, [3], claim="p-1"))) == "p-1"
    assert decode_claim(encode_record(StoredPacketIds({9: 1}))) == ""
    with pytest.raises(StoreError) as damaged:
        decode_claim(b"{")
    assert damaged.value.name == "RECORD_DAMAGED"


def test_records_are_read_as_they_were_written_before() -> None:
    assert decode_packet_ids(b'{"received":{"9":1700000000000},"released":[3]}').received == {9: 1700000000000}
    assert encode_record(StoredPacketIds({9: 5})) == b'{"received":{"9":5}}'
