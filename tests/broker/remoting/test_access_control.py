"""A guarded broker and nameserver over real sockets: who is let in, to what, and what forgers are answered."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from access_samples import ANN, BOB, ROOT, sample_guard
from millstream.broker.access_file import open_access_book
from millstream.broker.remoting import broker_handlers
from millstream.broker.remoting.permissions import BROKER_NEEDS
from millstream.client.access import AccessOperations
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.cluster.nameserver import RouteRegistry
from millstream.cluster.permissions import NAMESERVER_NEEDS
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.errors import AccessRefused, NameRefused, Refused
from millstream.model.group import GroupConfig
from millstream.model.message import Address, Message, OutgoingMessage
from millstream.model.operations import DeadLetterQuery, PopRequest
from millstream.model.properties import KEYS
from millstream.model.state_topics import MQTT_SESSIONS_TOPIC, ROUTES_TOPIC
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.administration.access import PolicyEntryInfo, UserInfo
from millstream.protocol.remoting.administration.dead_letters import encode_dead_letter_query
from millstream.protocol.remoting.administration.settings import encode_group
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, HeaderType, RemotingCommand
from millstream.protocol.remoting.messages.cold_ranges import ColdRangesCall
from millstream.protocol.remoting.messages.popping import PopCall, encode_pop
from millstream.protocol.remoting.messages.state import encode_state
from millstream.security.guard import Guard
from millstream.security.policy import PolicyEntry
from millstream.security.signature import Credentials
from millstream.transport.gate import RemotingGate
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.signing import sign_command
from patience import within_patience
from servers import Servers

ADMIN_CODES = [code for code in RequestCode if code.name.startswith("AUTH_")]
SUPER_CODES_OF_BROKERS = {
    25,
    26,
    306,
    314,
    316,
    329,
    908,
    2001,
    2002,
    2004,
    9141,
    9142,
    9143,
    9144,
    9145,
    9150,
    9151,
    200056,
}
SUPER_CODES_OF_NAMESERVERS = {100, 102, 205, 318, 319, 327}
"""Those that show or change settings, keys and permissions of brokers, move offsets or remove messages, or that proxies
ask in the name of their clients."""


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return sample_guard(tmp_path / "access")


@pytest_asyncio.fixture
async def guarded(servers: Servers, guard: Guard) -> Servers:
    servers.broker.topics.create(TopicConfig("orders"))
    servers.broker.topics.create(TopicConfig("others"))
    servers.broker_server.handlers = broker_handlers(servers.broker, guard)
    servers.broker_server.gate = RemotingGate(guard, BROKER_NEEDS)
    servers.nameserver_server.gate = RemotingGate(guard, NAMESERVER_NEEDS)
    return servers


@pytest_asyncio.fixture
async def line(guarded: Servers) -> AsyncIterator[RemotingConnection]:
    """A connection to the broker that signs nothing by itself."""
    host, _, port = guarded.broker_address.rpartition(":")
    connection = await RemotingConnection.open(Address(host, int(port)))
    yield connection
    await connection.close()


def client(servers: Servers, credentials: Credentials | None) -> Client:
    return Client(servers.nameserver, credentials=credentials)


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [json.loads(record.getMessage()) for record in caplog.records if record.name == "millstream.audit"]
    return [line.get("reason", line["event"]) for line in found]


async def ask(line: RemotingConnection, command: RemotingCommand, credentials: Credentials | None = None) -> int:
    if credentials is not None:
        sign_command(command, credentials)
    return (await line.request(command, 5)).code


async def test_every_code_of_a_broker_says_what_it_needs_or_is_for_super_users(servers: Servers) -> None:
    assert broker_handlers(servers.broker).keys() == BROKER_NEEDS.keys() | {*ADMIN_CODES, *SUPER_CODES_OF_BROKERS}


def test_every_code_of_a_nameserver_says_what_it_needs() -> None:
    assert nameserver_handlers(RouteRegistry()).keys() == NAMESERVER_NEEDS.keys() | SUPER_CODES_OF_NAMESERVERS


async def test_a_user_sends_to_a_topic_and_reads_it_as_the_entries_allow(guarded: Servers) -> None:
    async with client(guarded, ANN) as ann:
        sent = await Producer(ann).send(Message("orders", b"hello"))
        assert await ann.query_offset("billing", sent.queue) is None
        await ann.commit_offset("billing", sent.queue, 1)
        assert await ann.query_offset("billing", sent.queue) == 1


@pytest.mark.parametrize("credentials", [None, Credentials("ann", "wrong-secret"), Credentials("eve", "secret-of-eve")])
async def test_without_right_credentials_nothing_is_answered(
    guarded: Servers, credentials: Credentials | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILLSTREAM_ACCESS_KEY", raising=False)
    async with client(guarded, credentials) as stranger:
        for attempt in (
            stranger.topics(),
            stranger.route("orders"),
            stranger.create_topic(TopicConfig("mine")),
            stranger.groups(),
        ):
            with pytest.raises(AccessRefused) as refused:
                await attempt
            assert refused.value.name == "UNAUTHORIZED"
    assert guarded.broker.topics.find("mine") is None


async def test_what_no_entry_allows_is_refused_with_its_number(guarded: Servers) -> None:
    async with client(guarded, ANN) as ann:
        for attempt in (
            ann.route("others"),
            ann.create_topic(TopicConfig("mine")),
            ann.delete_topic("orders"),
            ann.create_group(GroupConfig("mine")),
            ann.delete_group("billing"),
            ann.groups(),
            ann.run(AccessOperations(ann.conversations).users()),
        ):
            with pytest.raises(AccessRefused) as refused:
                await attempt
            assert refused.value.name == "ACCESS_DENIED"


async def test_every_user_may_ask_where_the_topic_lies_that_all_producers_ask_for(guarded: Servers) -> None:
    async with client(guarded, BOB) as bob:
        with pytest.raises(NameRefused):
            await bob.route("TBW102")


async def test_a_light_queue_needs_the_right_to_its_group_alone_and_those_of_sessions_a_super_user(
    guarded: Servers, line: RemotingConnection
) -> None:
    for name, group in (("queue", "billing"), ("mqtt-a", "CID_MQTT")):
        declared = b'{"kind": "amqp", "group": "%s"}' % group.encode()
        await guarded.broker.delivery.store_state([OutgoingMessage(ROUTES_TOPIC, declared, {"KEYS": f"queue/{name}"})])
    pops = {
        name: encode_pop(PopCall(PopRequest(group, f"%LMQ%{name}", 10_000), 0, from_last=False))
        for name, group in (("queue", "billing"), ("mqtt-a", "CID_MQTT"))
    }
    answers = {}
    for user in (ANN, ROOT):
        for name, ext in pops.items():
            answers[user, name] = await ask(line, RemotingCommand(RequestCode.POP_MESSAGE, dict(ext)), user)
    assert answers == {
        (ANN, "queue"): ResponseCode.POLLING_TIMEOUT,
        (ANN, "mqtt-a"): ResponseCode.NO_PERMISSION,
        (ROOT, "queue"): ResponseCode.POLLING_TIMEOUT,
        (ROOT, "mqtt-a"): ResponseCode.POLLING_TIMEOUT,
    }


async def test_no_code_is_open_to_strangers(line: RemotingConnection, caplog: pytest.LogCaptureFixture) -> None:
    ext = {"topic": "orders", "b": "orders", "consumerGroup": "billing", "username": "root", "subject": "User:root"}
    codes = sorted({*BROKER_NEEDS, *ADMIN_CODES, *SUPER_CODES_OF_BROKERS, 9999})
    for code in codes:
        assert await ask(line, RemotingCommand(code, dict(ext))) == ResponseCode.NO_PERMISSION, code
        assert await ask(line, RemotingCommand(code)) == ResponseCode.NO_PERMISSION, code
    # The audit tells of so many at once and no more.
    assert set(reasons(caplog)) == {"no credentials"}


async def test_users_and_policies_are_for_super_users_alone(
    line: RemotingConnection, guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    guard.book.put_entries("bob", list(guard.book.entries("ann")))
    for code in ADMIN_CODES:
        body = b'{"password":"another-secret","userType":"Super"}'
        ext = {"username": "bob", "subject": "User:bob"}
        assert await ask(line, RemotingCommand(code, ext, body), BOB) == ResponseCode.NO_PERMISSION, code
        assert reasons(caplog)[-1] == "no super user"
    assert not guard.book.get("bob").is_super


async def test_the_state_of_proxies_is_for_super_users_whatever_entries_say(
    line: RemotingConnection, guarded: Servers, guard: Guard
) -> None:
    guard.book.put_entries("bob", [PolicyEntry.read("*", ["All"], [], "Allow")])
    record = OutgoingMessage(MQTT_SESSIONS_TOPIC, b"value", {KEYS: "client"})
    store = encode_state(guarded.broker.name, [record])
    assert await ask(line, store, BOB) == ResponseCode.NO_PERMISSION
    assert await ask(line, encode_state(guarded.broker.name, [record]), ROOT) == ResponseCode.SUCCESS
    pull = {"consumerGroup": "g", "topic": MQTT_SESSIONS_TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
    pull |= {"sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
    asked = RemotingCommand(RequestCode.PULL_MESSAGE, pull)
    assert await ask(line, asked, BOB) == ResponseCode.NO_PERMISSION
    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": MQTT_SESSIONS_TOPIC})
    assert await ask(line, delete, BOB) == ResponseCode.NO_PERMISSION
    send = RemotingCommand(
        RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": MQTT_SESSIONS_TOPIC, "e": "0", "g": "1", "i": ""}
    )
    assert await ask(line, send, BOB) == ResponseCode.NO_PERMISSION
    (log_offset,) = [
        entry.log_offset for entry in guarded.broker.maintenance.store.entries(MQTT_SESSIONS_TOPIC, 0, 0, 9)
    ]
    by_place = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset)})
    assert await ask(line, by_place, BOB) == ResponseCode.SYSTEM_ERROR


async def test_a_request_replayed_with_another_body_or_field_is_refused(
    line: RemotingConnection, guarded: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"a": "p", "b": "orders", "e": "0", "g": "1", "i": ""}
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"pay 1")
    assert await ask(line, command, ANN) == ResponseCode.SUCCESS
    command.body = b"pay 9"
    assert await ask(line, command) == ResponseCode.NO_PERMISSION
    command.body = b"pay 1"
    command.ext["e"] = "1"
    assert await ask(line, command) == ResponseCode.NO_PERMISSION
    assert reasons(caplog) == ["wrong signature"] * 2
    assert sum(item.max_offset for item in guarded.broker.queues.ranges("orders")) == 1


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, "group"),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, "group"),
        (RequestCode.QUERY_CONSUME_QUEUE, "consumerGroup"),
        (RequestCode.QUERY_CORRECTION_OFFSET, "compareGroup"),
    ],
)
async def test_who_reads_a_topic_is_told_nothing_of_groups_that_he_may_not_see(
    line: RemotingConnection, code: RequestCode, field: str
) -> None:
    ext = {"topic": "orders", "queueId": "0", "index": "0"}
    assert await ask(line, RemotingCommand(code, {**ext, field: "billing"}), ANN) != ResponseCode.NO_PERMISSION
    assert await ask(line, RemotingCommand(code, {**ext, field: "others"}), ANN) == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("header_type", HeaderType)
async def test_both_header_types_are_signed_alike(line: RemotingConnection, header_type: HeaderType) -> None:
    command = RemotingCommand(
        RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0", "empty": ""}, header_type=header_type
    )
    assert await ask(line, command, ANN) == ResponseCode.SUCCESS


async def test_a_oneway_request_of_a_stranger_does_nothing_and_is_audited(
    line: RemotingConnection, guarded: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    ext = {"consumerGroup": "billing", "topic": "orders", "queueId": "0", "commitOffset": "5"}
    unanswered = line.submit(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext, flag=FLAG_ONEWAY), 5)
    assert await ask(line, RemotingCommand(RequestCode.GET_MAX_OFFSET)) == ResponseCode.NO_PERMISSION
    assert not unanswered.done()
    assert guarded.broker.queues.committed_offset("billing", "orders", 0) is None
    assert len(reasons(caplog)) == 2
    unanswered.cancel()


async def test_names_that_play_tricks_open_no_other_topic(line: RemotingConnection) -> None:
    for topic in ("others", "orders ", "Orders", "../orders", "*", "ord*", "orders\x00", "", "%RETRY%g", "%RETRY%"):
        fields = {"a": "p", "b": topic, "topic": "orders", "e": "0", "g": "1", "i": ""}
        command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"x")
        assert await ask(line, command, ANN) == ResponseCode.NO_PERMISSION, topic


async def test_where_cold_messages_lie_is_told_to_whom_may_read_them(line: RemotingConnection) -> None:
    def ranges(group: str, topic: str, queue_id: int = 0) -> RemotingCommand:
        return RemotingCommand(RequestCode.COLD_RANGES, ColdRangesCall(group, topic, queue_id, 0, 10).encode())

    assert await ask(line, ranges("billing", "orders"), ANN) == ResponseCode.SUCCESS
    for command in (ranges("billing", "others"), ranges("others", "orders"), ranges("billing", "missing")):
        assert await ask(line, command, ANN) == ResponseCode.NO_PERMISSION
    assert await ask(line, ranges("billing", "orders"), BOB) == ResponseCode.NO_PERMISSION
    assert await ask(line, ranges("billing", "missing"), ROOT) == ResponseCode.TOPIC_NOT_EXIST
    assert await ask(line, ranges("billing", "orders", 99), ROOT) not in (
        ResponseCode.SUCCESS,
        ResponseCode.NO_PERMISSION,
    )


async def test_a_groups_retry_topic_is_its_groups(line: RemotingConnection, guarded: Servers) -> None:
    guarded.broker.topics.create(TopicConfig("%RETRY%billing", read_queues=1, write_queues=1))
    fields = {"a": "p", "b": "%RETRY%billing", "e": "0", "g": "1", "i": ""}
    assert await ask(line, RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"x"), ANN) == ResponseCode.SUCCESS


async def test_a_heartbeat_needs_the_right_to_each_group_and_topic(line: RemotingConnection) -> None:
    def heartbeat(group: str, *topics: str) -> RemotingCommand:
        subscriptions = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
        consumer = {"groupName": group, "subscriptionDataSet": subscriptions}
        body = json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
        return RemotingCommand(RequestCode.HEART_BEAT, {}, body)

    assert await ask(line, heartbeat("billing", "orders", "%RETRY%billing"), ANN) == ResponseCode.SUCCESS
    assert await ask(line, heartbeat("billing", "orders", "%RETRY%billing_orders"), ANN) == ResponseCode.SUCCESS
    assert await ask(line, heartbeat("billing", "%RETRY%billing_others"), ANN) == ResponseCode.NO_PERMISSION
    assert await ask(line, heartbeat("billing", "%RETRY%sales_orders"), ANN) == ResponseCode.NO_PERMISSION
    assert await ask(line, heartbeat("billing", "orders", "others"), ANN) == ResponseCode.NO_PERMISSION
    assert await ask(line, heartbeat("sales", "orders"), ANN) == ResponseCode.NO_PERMISSION


async def test_an_open_transaction_is_ended_by_who_may_send_to_its_topic_alone(
    line: RemotingConnection, guarded: Servers
) -> None:
    properties = "UNIQ_KEY\x01ID1\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02"
    guarded.broker.topics.create(TopicConfig("orders-tx", MessageType.TRANSACTION))
    fields = {"a": "p", "b": "orders-tx", "e": "0", "f": "4", "g": "1", "i": properties}
    half = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"half")
    sign_command(half, ROOT)
    sent = await line.request(half, 5)
    # As older clients do it: without the topic.
    end = {
        "producerGroup": "p", "tranStateTableOffset": sent.ext["queueOffset"], "msgId": "ID1", "transactionId": "ID1",
        "commitLogOffset": str(int(sent.ext["msgId"][-16:], 16)), "commitOrRollback": "12",
    }  # fmt: skip
    assert await ask(line, RemotingCommand(RequestCode.END_TRANSACTION, dict(end)), BOB) == ResponseCode.NO_PERMISSION
    assert await ask(line, RemotingCommand(RequestCode.END_TRANSACTION, dict(end)), ROOT) == ResponseCode.SUCCESS


async def test_a_record_by_its_log_offset_needs_the_right_to_all_topics(line: RemotingConnection) -> None:
    command = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "orders", "offset": "0"})
    assert await ask(line, command, ANN) == ResponseCode.NO_PERMISSION


async def test_dead_letters_are_sent_again_only_to_where_one_may_send(line: RemotingConnection, guard: Guard) -> None:
    guard.book.put_entries("bob", [PolicyEntry.read("Group:billing", ["Sub"], [], "Allow")])

    def redrive(target: str | None) -> RemotingCommand:
        return RemotingCommand(
            RequestCode.REDRIVE_DEAD_LETTERS, {}, encode_dead_letter_query(DeadLetterQuery("billing"), target)
        )

    for target in (None, "orders"):
        assert await ask(line, redrive(target), BOB) == ResponseCode.NO_PERMISSION
    assert await ask(line, redrive("others"), ANN) == ResponseCode.NO_PERMISSION
    assert await ask(line, redrive(None), ANN) == ResponseCode.NO_PERMISSION
    assert await ask(line, redrive("orders"), ANN) != ResponseCode.NO_PERMISSION


async def test_a_group_is_changed_only_with_the_right_to_change_it(line: RemotingConnection, guard: Guard) -> None:
    guard.book.put_entries("bob", [PolicyEntry.read("Group:sales", ["Create"], [], "Allow")])
    body = encode_group(GroupConfig("sales"))
    only_new = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, {"createOnly": "true"}, body)
    assert await ask(line, only_new, BOB) == ResponseCode.SUCCESS
    change = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, {}, body)
    assert await ask(line, change, BOB) == ResponseCode.NO_PERMISSION


async def test_a_change_of_access_holds_from_the_next_request_on_an_open_connection(
    guarded: Servers, line: RemotingConnection, caplog: pytest.LogCaptureFixture
) -> None:
    look = RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
    assert await ask(line, look, BOB) == ResponseCode.NO_PERMISSION
    async with client(guarded, ROOT) as root:
        access = AccessOperations(root.conversations)
        await root.run(access.put_entries("bob", "Custom", [PolicyEntryInfo("topic:orders", ["get"])]))
        assert await ask(line, look, BOB) == ResponseCode.SUCCESS
        await root.run(access.delete_entries("bob", "Custom", "Topic:orders"))
        assert await ask(line, look, BOB) == ResponseCode.NO_PERMISSION
        await root.run(access.update_user(UserInfo("ann", user_status="disable")))
        assert await ask(line, look, ANN) == ResponseCode.NO_PERMISSION
        await root.run(access.delete_user("ann"))
        assert await ask(line, look, ANN) == ResponseCode.NO_PERMISSION
    assert reasons(caplog).count("changed") == 4


async def test_users_and_policies_are_listed_without_secrets_and_kept_over_a_restart(
    guarded: Servers, tmp_path: Path
) -> None:
    async with client(guarded, ROOT) as root:
        access = AccessOperations(root.conversations)
        await root.run(access.create_user(UserInfo("eve", "secret-of-eve", "normal", "disable")))
        assert [user.username for user in await root.run(access.users())] == ["ann", "bob", "eve", "root"]
        assert (await root.run(access.user("eve"))) == UserInfo("eve", None, "Normal", "disable")
        (acl,) = await root.run(access.acls())
        assert acl.subject == "User:ann"
        assert acl == await root.run(access.acl("ann"))
    again = open_access_book(tmp_path / "access")
    assert again.get("eve").secret == "secret-of-eve"
    assert {str(entry) for entry in again.entries("ann")} == {
        "Custom Allow Get on Cluster:*",
        "Custom Allow Sub on Group:billing",
        "Custom Allow Pub,Sub on Topic:orders",
    }


def test_only_the_owner_may_read_the_file_with_the_secrets(guard: Guard, tmp_path: Path) -> None:
    files = sorted((tmp_path / "access" / "config").iterdir())
    assert [file.name for file in files] == ["access.json", "access.json.bak"]
    assert {stat.S_IMODE(os.stat(file).st_mode) for file in files} == {0o600}


async def test_a_bad_request_about_access_is_refused_in_words(line: RemotingConnection) -> None:
    fly = b'{"policies":[{"entries":[{"resource":"*","actions":["Fly"]}]}]}'
    requests: list[tuple[int, dict[str, str], bytes]] = [
        (RequestCode.AUTH_CREATE_USER, {}, b'{"password":"long-enough"}'),
        (RequestCode.AUTH_CREATE_USER, {"username": "../x"}, b'{"password":"long-enough"}'),
        (RequestCode.AUTH_CREATE_USER, {"username": "x"}, b"{}"),
        (RequestCode.AUTH_CREATE_USER, {"username": "x"}, b"nonsense"),
        (RequestCode.AUTH_CREATE_USER, {"username": "x"}, b'{"password":"long-enough","userType":"King"}'),
        (RequestCode.AUTH_UPDATE_USER, {"username": "root"}, b'{"userStatus":"disable"}'),
        (RequestCode.AUTH_DELETE_USER, {"username": "root"}, b""),
        (RequestCode.AUTH_GET_USER, {"username": "nobody"}, b""),
        (RequestCode.AUTH_CREATE_ACL, {"subject": "User:bob"}, b'{"policies":[]}'),
        (RequestCode.AUTH_CREATE_ACL, {"subject": "User:bob"}, b"[" * 1000),
        (RequestCode.AUTH_CREATE_ACL, {"subject": "User:bob"}, fly),
        (RequestCode.AUTH_DELETE_ACL, {"subject": "User:bob", "policyType": "Odd"}, b""),
        (RequestCode.AUTH_GET_ACL, {"subject": "User:nobody"}, b""),
        (9999, {}, b""),
    ]
    for code, ext, body in requests:
        command = RemotingCommand(code, ext, body)
        sign_command(command, ROOT)
        answer = await line.request(command, 5)
        assert answer.code not in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR), (code, body)
        assert answer.remark


async def test_with_access_control_off_signed_requests_are_answered_and_there_are_no_users(servers: Servers) -> None:
    async with client(servers, ANN) as anyone:
        await anyone.create_topic(TopicConfig("orders"))
        with pytest.raises(Refused) as refused:
            await anyone.run(AccessOperations(anyone.conversations).users())
        assert refused.value.name == "ACCESS_CONTROL_OFF"


async def test_a_clients_environment_names_its_credentials(guarded: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_ACCESS_KEY", ANN.access_key)
    monkeypatch.setenv("MILLSTREAM_SECRET_KEY", ANN.secret_key)
    async with Client(guarded.nameserver) as ann:
        assert await within_patience(ann.route("orders"))
