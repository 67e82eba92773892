"""Clients of the remoting protocol under access control: with the right keys, with wrong ones, with rights that are
taken back while they are connected; in plaintext and, those of RocketMQ itself, over TLS.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from interop.driver import ClientError, Driver
from interop.orders import bodies_of, remoting_producer, remoting_push, send_all
from interop.server import Server
from millstream.client.access import AccessOperations
from millstream.protocol.remoting.administration.access import PolicyEntryInfo, UserInfo
from millstream.security.signature import Credentials

_numbers = itertools.count()
NO_PERMISSION = 16
NO_ROUTE = 10005
"""What the Java client makes of every answer to the question for a route but the route."""

Keys = dict[str, str]


def keys_of(credentials: Credentials) -> Keys:
    """The fields of an order that opens a client."""
    return {"access_key": credentials.access_key, "secret_key": credentials.secret_key}


def user(server: Server, *grants: tuple[str, str]) -> Keys:
    """The keys of a new user who may do what each pair of a resource and actions (`Pub,Sub`) says."""
    name = f"ann-{next(_numbers)}"
    credentials = Credentials(name, f"secret-of-{name}")
    with server.client() as client:
        access = AccessOperations(client.conversations)
        client.run(access.create_user(UserInfo(name, credentials.secret_key, "Normal")))
        if grants:
            entries = [PolicyEntryInfo(resource, actions.split(",")) for resource, actions in grants]
            client.run(access.put_entries(name, "Custom", entries))
    time.sleep(server.access_delay_s)
    return keys_of(credentials)


def audit_of(server: Server, keys: Keys) -> list[str]:
    """The lines of the audit about a user."""
    named = f'"user": "{keys.get("access_key", "")}"'
    return [line for line in server.log.read_text().splitlines() if '"refused"' in line and named in line]


def was_told(remoting: Driver, refused: ClientError, number: str) -> bool:
    """Whether a sender was told why it failed; ali-ons says only how often it tried, and Go's client gives no code."""
    if remoting.name == "go-remoting":
        return number in str(refused)
    return remoting.name == "ali-ons" or (refused.code == NO_PERMISSION and number in str(refused))


def revoke(server: Server, keys: Keys, resource: str) -> None:
    with server.client() as client:
        client.run(AccessOperations(client.conversations).delete_entries(keys["access_key"], "Custom", resource))
    time.sleep(server.access_delay_s)


@pytest.fixture(params=[False, True], ids=["plaintext", "tls"])
def tls(request: pytest.FixtureRequest, remoting: Driver) -> dict[str, Any]:
    """The fields of an order that turn TLS on or not; ali-ons and Go's client have none."""
    if not request.param:
        return {}
    if remoting.name in ("ali-ons", "go-remoting"):
        pytest.skip(f"{remoting.name} speaks no TLS")
    return {"tls": True}


def test_a_user_sends_and_consumes_and_gets_failures_again(
    remoting: Driver, guarded_door: Server, tls: dict[str, Any]
) -> None:
    topic, group = guarded_door.topic(), guarded_door.group(remoting.name)
    mine = {**user(guarded_door, (f"Topic:{topic}", "Pub,Sub"), (f"Group:{group}", "Sub")), **tls}
    sender = remoting_producer(remoting, guarded_door, **mine)
    consumer = remoting_push(remoting, guarded_door, topic, group, fail={"m3": 1}, **mine)
    sent = [f"m{number}" for number in range(10)]
    send_all(remoting, sender, topic, sent, properties={"farbe": "grün"})
    remoting.wait_for(consumer, len(sent) + 1, timeout_s=90)
    assert Counter(bodies_of(remoting, consumer)) == Counter([*sent, "m3"])
    for client in (consumer, sender):
        remoting.order("close", client)


@pytest.mark.parametrize("way", [{"orderly": True}, {"model": "broadcast"}, {"pop": True}, {"sql": "price > 1"}])
def test_each_way_to_consume_needs_no_more_than_sub_on_topic_and_group(
    java: Driver, guarded_door: Server, way: dict[str, Any]
) -> None:
    if "pop" in way and (java.name != "java-5.3" or guarded_door.remoting != guarded_door.nameserver):
        pytest.skip("the client of 4.9 does not pop, and proxies have nothing to pop")
    topic, group = guarded_door.topic(), guarded_door.group(java.name)
    sender = remoting_producer(java, guarded_door, **user(guarded_door, (f"Topic:{topic}", "Pub")))
    reader = user(guarded_door, (f"Topic:{topic}", "Sub"), (f"Group:{group}", "Sub"))
    send_all(java, sender, topic, ["before"], properties={"price": "2"})
    consumer = remoting_push(java, guarded_door, topic, group, **way, **reader)
    wanted = {f"m{number}" for number in range(10)}
    give_up_s = time.monotonic() + 60
    # A consumer of a broadcast begins where the queues end, once it knows them.
    while not wanted <= set(bodies_of(java, consumer)):
        assert time.monotonic() < give_up_s, bodies_of(java, consumer)
        send_all(java, sender, topic, sorted(wanted), properties={"price": "2"})
        time.sleep(1)
    for client in (consumer, sender):
        java.order("close", client)


def test_a_lite_pull_consumer_needs_the_same(java: Driver, guarded_door: Server) -> None:
    topic, group = guarded_door.topic(), guarded_door.group(java.name)
    mine = user(guarded_door, (f"Topic:{topic}", "Pub,Sub"), (f"Group:{group}", "Sub"))
    sender = remoting_producer(java, guarded_door, **mine)
    send_all(java, sender, topic, ["a", "b"])
    java.order("open_pull", f"pull-{group}", endpoint=guarded_door.remoting, group=group, topic=topic, **mine)
    found: list[str] = []
    for _ in range(8):
        found += [message["body"] for message in java.order("receive", f"pull-{group}", await_s=1)["messages"]]
        if len(found) == 2:
            break
    assert sorted(found) == ["a", "b"]
    java.order("close", f"pull-{group}")
    java.order("close", sender)


@pytest.mark.parametrize("ending", ["commit", "leave"])
def test_a_producer_ends_its_transaction_or_is_asked_with_pub_on_the_topic(
    java: Driver, guarded_door: Server, ending: str
) -> None:
    topic, group = guarded_door.topic("MIXED"), guarded_door.group(java.name)
    mine = user(guarded_door, (f"Topic:{topic}", "Pub,Sub"), (f"Group:{group}", "Sub"))
    sender = remoting_producer(java, guarded_door, check="commit", **mine)
    java.order("send", sender, message={"topic": topic, "body": "half"}, transaction=ending)
    consumer = remoting_push(java, guarded_door, topic, group, **mine)
    java.wait_for(consumer, 1, timeout_s=90)
    for client in (consumer, sender):
        java.order("close", client)


def test_a_traced_producer_needs_pub_on_the_topic_of_traces(java: Driver, guarded_door: Server) -> None:
    topic, group = guarded_door.topic(), guarded_door.group(java.name)
    traces = "RMQ_SYS_TRACE_TOPIC"
    mine = user(guarded_door, (f"Topic:{topic}", "Pub"), (f"Topic:{traces}", "Pub,Sub"), (f"Group:{group}", "Sub"))
    sender = remoting_producer(java, guarded_door, trace=True, **mine)
    sent = java.order("send", sender, message={"topic": topic, "body": "followed"})
    reader = remoting_push(java, guarded_door, traces, group, **mine)
    java.wait_until(
        lambda: any(sent["id"] in body for body in bodies_of(java, reader)), 60, lambda: bodies_of(java, reader)
    )
    for client in (reader, sender):
        java.order("close", client)


@pytest.mark.parametrize("wrong", ["secret", "name", "no keys", "no right"])
def test_who_may_not_send_is_told_so(remoting: Driver, guarded_door: Server, tls: dict[str, Any], wrong: str) -> None:
    if wrong == "no keys" and remoting.name == "ali-ons":
        pytest.skip("ali-ons signs always, as a user none where it has no keys")
    topic = guarded_door.topic()
    right = user(guarded_door, (f"Topic:{topic}", "Pub"))
    keys = {
        "secret": {**right, "secret_key": "no-secret"},
        "name": {**right, "access_key": "eve"},
        "no keys": {},
        "no right": user(guarded_door),
    }[wrong]
    sender = remoting_producer(remoting, guarded_door, **keys, **tls)
    with pytest.raises(ClientError) as refused:
        remoting.order("send", sender, message={"topic": topic, "body": "x"})
    assert refused.value.code in (NO_PERMISSION, NO_ROUTE, None), refused.value
    # Where the route is refused already, Java's clients say only that there is none, and Go's says so without a code.
    if refused.value.code != NO_ROUTE and "route info not found" not in str(refused.value):
        assert ("MS-2302" if wrong == "no right" else "MS-2301") in str(refused.value)
    why = {"secret": "wrong signature", "name": "does not exist", "no keys": "no credentials", "no right": topic}[wrong]
    assert any(why in line for line in audit_of(guarded_door, keys)), audit_of(guarded_door, keys)
    remoting.order("close", sender)
    with guarded_door.client() as client:
        assert [held.range.max_offset for held in client.queue_ranges(topic)] == [0] * 4


def test_rights_that_are_taken_back_end_at_once_for_who_is_connected(remoting: Driver, guarded_door: Server) -> None:
    topic, group = guarded_door.topic(), guarded_door.group(remoting.name)
    mine = user(guarded_door, (f"Topic:{topic}", "Pub,Sub"), (f"Group:{group}", "Sub"))
    sender = remoting_producer(remoting, guarded_door, **mine)
    consumer = remoting_push(remoting, guarded_door, topic, group, **mine)
    send_all(remoting, sender, topic, ["before"])
    remoting.wait_for(consumer, 1)
    revoke(guarded_door, mine, f"Group:{group}")
    # What waits already ends as it began.
    send_all(remoting, sender, topic, ["last"] * 8)
    time.sleep(3)
    send_all(remoting, sender, topic, ["not for it"] * 8)
    time.sleep(3)
    assert "not for it" not in bodies_of(remoting, consumer)
    revoke(guarded_door, mine, f"Topic:{topic}")
    with pytest.raises(ClientError) as refused:
        remoting.order("send", sender, message={"topic": topic, "body": "not sent"})
    assert was_told(remoting, refused.value, "MS-2302")
    for client in (consumer, sender):
        with suppress(ClientError):
            # It says that it leaves the group, which is refused as well.
            remoting.order("close", client)
    with guarded_door.client() as admin:
        assert sum(held.range.max_offset for held in admin.queue_ranges(topic)) == 17


def test_a_user_who_is_disabled_is_refused_on_an_open_connection(remoting: Driver, guarded_door: Server) -> None:
    topic = guarded_door.topic()
    mine = user(guarded_door, (f"Topic:{topic}", "Pub"))
    sender = remoting_producer(remoting, guarded_door, **mine)
    send_all(remoting, sender, topic, ["before"])
    with guarded_door.client() as client:
        access = AccessOperations(client.conversations)
        client.run(access.update_user(UserInfo(mine["access_key"], user_status="disable")))
    time.sleep(guarded_door.access_delay_s)
    with pytest.raises(ClientError) as refused:
        remoting.order("send", sender, message={"topic": topic, "body": "not sent"})
    assert was_told(remoting, refused.value, "MS-2301")
    with suppress(ClientError):
        remoting.order("close", sender)
