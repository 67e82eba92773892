"""Messages into a topic and out of it over HTTP, by real sockets."""

from __future__ import annotations

import asyncio
import base64
import json

from http_ground import EVENT, HttpGround


async def test_an_event_that_is_posted_is_received_and_gone_once_it_is_acknowledged(ground: HttpGround) -> None:
    sent = await ground.client.post(
        "/v1/topics/orders/messages", headers={**EVENT, "content-type": "application/json"}, content=b'{"total": 5}'
    )
    assert sent.status_code == 200, sent.text
    [place] = sent.json()["messages"]
    assert len(place["id"]) == 32

    [found] = await ground.receive()
    assert found["event"] == {
        "specversion": "1.0",
        "id": "A1",
        "source": "/shop",
        "type": "order.created",
        "datacontenttype": "application/json",
        "data": {"total": 5},
    }
    assert found["attempt"] == 1
    assert (await ground.settle("ack", found["handle"])).json() == {"results": [{"handle": found["handle"]}]}
    assert await ground.receive(wait="0s") == []
    again = await ground.settle("ack", found["handle"])
    assert again.status_code in (200, 409)


async def test_a_delivery_that_is_given_back_comes_again_as_the_second_attempt(ground: HttpGround) -> None:
    await ground.post("work")
    [first] = await ground.receive()
    assert (await ground.settle("nack", first["handle"])).status_code == 200
    [second] = await ground.receive()
    assert second["attempt"] == 2
    assert base64.b64decode(second["event"]["data_base64"]) == b"work"


async def test_an_extended_delivery_has_a_new_handle_and_the_old_one_is_refused(ground: HttpGround) -> None:
    await ground.post("work")
    [found] = await ground.receive()
    [result] = (await ground.settle("extend", found["handle"], invisible="5m")).json()["results"]
    old = await ground.settle("ack", found["handle"])
    assert (old.status_code, old.json()["code"]) == (409, "MS-3201")
    assert (await ground.settle("ack", result["renewed"])).status_code == 200


async def test_a_delivery_that_is_given_up_lies_in_the_dead_letter_topic(ground: HttpGround) -> None:
    await ground.post("poison")
    [found] = await ground.receive()
    assert (await ground.settle("dead-letter", found["handle"])).status_code == 200
    [dead] = await ground.receive(topic="%25DLQ%25g", group="gravedigger")
    assert base64.b64decode(dead["event"]["data_base64"]) == b"poison"


async def test_a_receive_waits_for_the_message_and_answers_with_nothing_after_its_time(ground: HttpGround) -> None:
    waiting = asyncio.create_task(ground.receive())
    await asyncio.sleep(0)
    await ground.post("late")
    [found] = await waiting
    await ground.settle("ack", found["handle"])
    assert await ground.receive(wait="50ms") == []


async def test_a_batch_is_stored_as_one_and_received_as_a_batch_with_handles(ground: HttpGround) -> None:
    events = [
        {"specversion": "1.0", "id": str(number), "source": "/s", "type": "t", "data": {"n": number}}
        for number in range(3)
    ]
    sent = await ground.client.post(
        "/v1/topics/orders/messages",
        headers={"content-type": "application/cloudevents-batch+json"},
        content=json.dumps(events),
    )
    assert len(sent.json()["messages"]) == 3
    answer = await ground.client.post(
        "/v1/groups/g/topics/orders/receive",
        params={"max": "32", "wait": "20s"},
        headers={"accept": "application/cloudevents-batch+json"},
    )
    assert answer.headers["content-type"] == "application/cloudevents-batch+json"
    found = answer.json()
    assert {event["id"] for event in found} <= {"0", "1", "2"}
    handles = [event["rmqhandle"] for event in found]
    assert (await ground.settle("ack", *handles)).status_code == 200


async def test_one_bad_event_of_a_batch_stores_none_of_them(ground: HttpGround) -> None:
    events = [{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}, {"specversion": "1.0", "id": "2"}]
    sent = await ground.client.post(
        "/v1/topics/orders/messages",
        headers={"content-type": "application/cloudevents-batch+json"},
        content=json.dumps(events),
    )
    assert (sent.status_code, sent.json()["code"]) == (400, "MS-3270")
    assert "Element 2" in sent.json()["detail"]
    assert await ground.receive(wait="0s") == []


async def test_a_delayed_message_is_taken_back_by_its_handle(ground: HttpGround) -> None:
    sent = await ground.post("later", topic="later", delay="1h")
    [place] = sent.json()["messages"]
    answer = await ground.client.delete(f"/v1/topics/later/messages/{place['recallHandle']}")
    assert answer.json() == {"id": place["id"]}


async def test_what_the_query_says_of_a_message_is_stored_with_it(ground: HttpGround) -> None:
    query = {"tag": "new", "key": "k1", "property.user": "anna", "property.Level-2": "x"}
    await ground.client.post("/v1/topics/orders/messages", params=query, content=b"x")
    [found] = await ground.receive(filter="new")
    event = found["event"]
    assert (event["type"], event["subject"], event["user"]) == ("new", "k1", "anna")
    assert json.loads(event["millstreamprops"]) == {"Level-2": "x"}


async def test_events_of_one_partition_key_stay_in_order_in_either_kind_of_topic(ground: HttpGround) -> None:
    for number in range(3):
        headers = {**EVENT, "ce-id": str(number), "ce-partitionkey": "tenant"}
        for topic in ("ordered", "orders"):
            answer = await ground.client.post(f"/v1/topics/{topic}/messages", headers=headers, content=b"x")
            assert answer.status_code == 200, answer.text
    found = await ground.receive(topic="ordered", max="3")
    assert [one["event"]["id"] for one in found] == ["0", "1", "2"]
    assert len({one["queue"] for one in await ground.receive(max="3")}) == 1
