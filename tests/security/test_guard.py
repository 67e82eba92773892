"""The guard: who is let in, what is remembered, and that a change of access holds at once."""

from __future__ import annotations

import base64
import hmac
import json

import pytest

from millstream.model.clock import ManualClock
from millstream.model.errors import AccessRefused
from millstream.security.guard import MAX_REMEMBERED, REMEMBER_S, AuditLog, Guard
from millstream.security.policy import Action, PolicyEntry, RequiredAccess
from millstream.security.resource import Resource
from millstream.security.signature import Credentials, client_id_signature, header_digest, signed_fields
from millstream.security.users import AccessBook, User, UserKind

DATE = "20260730T120000Z"
PEER = "192.0.2.7"
PUBLISH = RequiredAccess(Resource.topic("orders"), (Action.PUB,))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def book() -> AccessBook:
    book = AccessBook(lambda users, entries, revision: None)
    book.create_user(User("root", "secret-of-root", UserKind.SUPER))
    book.create_user(User("ann", "secret-of-ann"))
    book.put_entries("ann", [PolicyEntry.read("Topic:orders", ["Pub"], [], "Allow")])
    return book


@pytest.fixture
def guard(book: AccessBook, clock: ManualClock) -> Guard:
    return Guard(book, AuditLog(clock), clock=clock)


def header(name: str = "ann", secret: str = "secret-of-ann", date: str = DATE) -> str:
    digest = header_digest(secret, date).hex()
    return f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={digest}"


def enter(guard: Guard, authorization: str | None = None, date: str = DATE) -> str:
    said = header() if authorization is None else authorization
    return guard.caller_of_headers(said, date, peer=PEER, action="SendMessage")


def test_a_signed_call_is_its_users(guard: Guard) -> None:
    assert enter(guard) == "ann"
    assert enter(guard) == "ann"


@pytest.mark.parametrize(
    ("authorization", "date", "reason"),
    [
        ("", DATE, "no credentials"),
        (header("", ""), DATE, "no credentials"),
        ("nonsense", DATE, "the header cannot be read"),
        (header("bob"), DATE, "the user does not exist"),
        (header("bob", "nobody has this secret"), DATE, "the user does not exist"),
        (header(secret="wrong"), DATE, "wrong signature"),
        (header("root"), DATE, "wrong signature"),
        (header("ANN"), DATE, "the user does not exist"),
        (header(), "", "no date was signed"),
        (header(), "20260730T120001Z", "wrong signature"),
        (header(), DATE + " ", "wrong signature"),
    ],
)
def test_a_call_that_is_not_signed_rightly_is_refused_and_the_reason_goes_to_the_audit_only(
    guard: Guard, caplog: pytest.LogCaptureFixture, authorization: str, date: str, reason: str
) -> None:
    with pytest.raises(AccessRefused) as refused:
        enter(guard, authorization, date)
    assert refused.value.name == "UNAUTHORIZED"
    assert json.loads(caplog.records[-1].getMessage())["reason"] == reason
    for told in ("exist", "signature", "bob", "ann"):
        assert told not in refused.value.message


def test_a_remembered_header_does_not_outlive_its_user(guard: Guard, book: AccessBook) -> None:
    enter(guard)
    book.update_user("ann", enabled=False)
    with pytest.raises(AccessRefused):
        enter(guard)
    book.update_user("ann", enabled=True)
    enter(guard)
    book.update_user("ann", secret="another-secret")
    with pytest.raises(AccessRefused):
        enter(guard)
    book.delete_user("ann")
    with pytest.raises(AccessRefused):
        enter(guard, header(secret="another-secret"))


def test_headers_are_remembered_for_a_time_and_up_to_a_limit(guard: Guard, clock: ManualClock) -> None:
    for number in range(2 * MAX_REMEMBERED):
        date = f"{number}"
        assert enter(guard, header(date=date), date) == "ann"
        assert len(guard._verified) <= MAX_REMEMBERED
    clock.advance_ms(int(REMEMBER_S * 1000) + 1)
    assert enter(guard, header(date=date), date) == "ann"


def test_what_no_entry_allows_is_denied_with_the_way_to_grant_it(guard: Guard) -> None:
    guard.allow("ann", [PUBLISH], peer=PEER, action="SendMessage")
    with pytest.raises(AccessRefused) as refused:
        guard.allow(
            "ann", [PUBLISH, RequiredAccess(Resource.group("g"), (Action.SUB,))], peer=PEER, action="ReceiveMessage"
        )
    assert refused.value.name == "ACCESS_DENIED"
    assert "millstream acl grant ann Sub 'Group:g'" in str(refused.value)


def test_a_verdict_does_not_outlive_its_entry(guard: Guard, book: AccessBook) -> None:
    guard.allow("ann", [PUBLISH], peer=PEER, action="SendMessage")
    book.put_entries("ann", [PolicyEntry.read("Topic:orders", ["Pub"], [PEER], "Deny")])
    with pytest.raises(AccessRefused):
        guard.allow("ann", [PUBLISH], peer=PEER, action="SendMessage")


def test_a_user_that_was_deleted_meanwhile_may_nothing(guard: Guard, book: AccessBook) -> None:
    book.delete_user("ann")
    with pytest.raises(AccessRefused) as refused:
        guard.allow("ann", [PUBLISH], peer=PEER, action="SendMessage")
    assert refused.value.name == "UNAUTHORIZED"


def test_only_super_users_pass_where_they_are_required(guard: Guard) -> None:
    guard.require_super("root", peer=PEER, action="AUTH_CREATE_USER")
    for name in ("ann", "nobody", ""):
        with pytest.raises(AccessRefused):
            guard.require_super(name, peer=PEER, action="AUTH_CREATE_USER")


def sign(ext: dict[str, str], body: bytes = b"", secret: str = "secret-of-ann") -> dict[str, str]:
    return signed_fields(Credentials("ann", secret), ext, (body,), version=473)


def test_a_signed_request_is_its_users(guard: Guard) -> None:
    signed = sign({"topic": "orders"}, b"body")
    assert guard.caller_of_fields(signed, (b"bo", b"dy"), 473, peer=PEER, action="10") == "ann"


@pytest.mark.parametrize(
    ("change", "body"),
    [
        ({}, b"another body"),
        ({"topic": "others"}, b"body"),
        ({"more": "x"}, b"body"),
        ({"AccessKey": "root"}, b"body"),
        ({"AccessKey": ""}, b"body"),
        ({"Signature": ""}, b"body"),
        ({"Signature": "%%%"}, b"body"),
        ({"Signature": "ä\ud800"}, b"body"),
        ({"topic": "\ud800"}, b"body"),
    ],
)
def test_a_request_that_was_altered_is_refused(guard: Guard, change: dict[str, str], body: bytes) -> None:
    signed = {**sign({"topic": "orders"}, b"body"), **change}
    with pytest.raises(AccessRefused) as refused:
        guard.caller_of_fields(signed, (body,), 473, peer=PEER, action="10")
    assert refused.value.name == "UNAUTHORIZED"


def enter_by_secret(guard: Guard, name: str, password: bytes, client_id: str = "") -> str:
    return guard.caller_of_secret(name, password, client_id=client_id, peer=PEER, action="CONNECT")


def test_who_knows_the_secret_is_its_user(guard: Guard) -> None:
    assert enter_by_secret(guard, "ann", b"secret-of-ann") == "ann"


def test_a_client_id_that_was_signed_with_the_secret_lets_its_client_in() -> None:
    # Of RocketMQ MQTT's rule: Base64 of HMAC-SHA1 of the client id, keyed by the secret.
    expected = base64.b64encode(hmac.digest(b"12345678", b"clientA", "sha1"))
    assert client_id_signature("12345678", "clientA") == expected


def test_a_signed_client_id_holds_for_that_client_alone(guard: Guard) -> None:
    signed = client_id_signature("secret-of-ann", "dev1")
    assert enter_by_secret(guard, "ann", signed, "dev1") == "ann"
    for client_id in ("dev2", ""):
        with pytest.raises(AccessRefused):
            enter_by_secret(guard, "ann", signed, client_id)
    with pytest.raises(AccessRefused):
        enter_by_secret(guard, "ann", client_id_signature("secret-of-ann", ""), "")


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("", b"secret-of-ann", "no credentials"),
        ("ann", b"", "wrong password"),
        ("ann", b"secret-of-root", "wrong password"),
        ("eve", b"nobody has this secret", "the user does not exist"),
    ],
)
def test_who_does_not_know_the_secret_is_refused_and_audited(
    guard: Guard, caplog: pytest.LogCaptureFixture, name: str, password: bytes, reason: str
) -> None:
    with pytest.raises(AccessRefused) as refusal:
        enter_by_secret(guard, name, password)
    assert refusal.value.name == "UNAUTHORIZED"
    assert json.loads(caplog.messages[-1])["reason"] == reason


def test_a_disabled_user_is_refused_by_its_secret_as_well(guard: Guard, book: AccessBook) -> None:
    book.update_user("ann", enabled=False)
    with pytest.raises(AccessRefused):
        enter_by_secret(guard, "ann", b"secret-of-ann")
