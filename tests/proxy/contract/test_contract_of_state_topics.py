"""What a state topic promises, over a broker in this process and over one behind sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from contract_ground import Ground, refused

from millstream.model.state_topics import MQTT_SESSIONS_TOPIC, ROUTES_TOPIC
from millstream.proxy.state_topics import StateTopic

WAIT_S = 60.0


class Table:
    """The values of all keys, and every record as it came."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.records: list[tuple[str, bytes | None, int]] = []
        self.forgotten = 0

    def apply(self, key: str, value: bytes | None, offset: int) -> None:
        self.records.append((key, value, offset))
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def forget(self) -> None:
        self.values.clear()
        self.forgotten += 1


@asynccontextmanager
async def opened(
    ground: Ground, topic: str = MQTT_SESSIONS_TOPIC, broker: str = ""
) -> AsyncIterator[tuple[StateTopic, Table]]:
    state, table = StateTopic(ground.backend, topic, broker_name=broker, clock=ground.clock), Table()
    state.listen(table.apply, table.forget)
    await state.start()
    try:
        async with asyncio.timeout(WAIT_S):
            await state.ready()
        yield state, table
    finally:
        await state.close()


async def test_what_one_proxy_puts_all_proxies_see_in_the_same_order(ground: Ground) -> None:
    async with asyncio.timeout(WAIT_S), opened(ground) as (one, ones), opened(ground) as (two, twos):
        offsets = [await one.put("client", b"one"), await two.put("client", b"two"), await one.put("other", b"x")]
        assert offsets == [0, 1, 2]
        gone = await two.delete("other")
        await one.reach(gone)
        await two.reach(gone)
        assert ones.records == twos.records
        assert ones.records == [("client", b"one", 0), ("client", b"two", 1), ("other", b"x", 2), ("other", None, 3)]
        assert ones.values == {"client": b"two"}
        assert (ones.forgotten, one.next_offset) == (0, 4)


async def test_who_comes_later_has_all_values_when_it_is_ready(ground: Ground) -> None:
    async with opened(ground) as (state, _):
        await asyncio.gather(*(state.put(f"client{number}", b"%d" % number) for number in range(50)))
        await state.delete("client7")
    async with opened(ground) as (late, table):
        assert (len(table.values), late.next_offset) == (49, 51)
        assert table.values["client8"] == b"8"


async def test_puts_of_one_key_hold_in_the_order_in_which_they_were_made(ground: Ground) -> None:
    async with opened(ground) as (state, table):
        offsets = await asyncio.gather(*(state.put("key", b"%d" % number) for number in range(20)))
        assert offsets == list(range(20))
        await state.reach(19)
        assert table.values == {"key": b"19"}


async def test_a_value_is_read_again_by_its_offset(ground: Ground) -> None:
    async with opened(ground) as (state, _):
        first, second = await state.put("a", b"payload"), await state.put("b", b"other")
        assert (await state.read(first), await state.read(second)) == (b"payload", b"other")
        assert await state.read(second + 1) is None
        assert await state.read(await state.delete("a")) is None


async def test_a_topic_that_nobody_made_is_empty_and_cannot_be_read(ground: Ground) -> None:
    async with opened(ground) as (state, table):
        assert (table.records, await state.read(0)) == ([], None)


async def test_a_state_topic_of_one_broker_lies_there(ground: Ground) -> None:
    value = b'{"kind": "amqp", "group": "q"}'
    async with opened(ground, ROUTES_TOPIC, "broker-a") as (state, table):
        await state.reach(await state.put("queue/q", value))
        assert table.values == {"queue/q": value}
        assert ground.broker.topics.find(ROUTES_TOPIC) is not None


async def test_keys_and_values_that_cannot_be_are_refused_and_harm_no_others(ground: Ground) -> None:
    async with opened(ground) as (state, table):
        assert await refused(state.put("two words", b"x")) == "ILLEGAL_KEY"
        assert await refused(state.put("", b"x")) == "ILLEGAL_KEY"
        assert await refused(state.put("k", b"")) == "BODY_EMPTY"
        huge = b"x" * (4 * 1024 * 1024 + 1)
        results = await asyncio.gather(
            state.put("a", b"1"), state.put("b", huge), state.put("c", b"3"), return_exceptions=True
        )
        assert [isinstance(one, int) for one in results] == [True, False, True]
        await state.reach(max(one for one in results if isinstance(one, int)))
        assert table.values == {"a": b"1", "c": b"3"}
