"""Signatures: what honest clients send in their several spellings, and what is not let through."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from millstream.security.signature import (
    MAX_HEADER_CHARACTERS,
    Authorization,
    Credentials,
    header_digest,
    parse_authorization,
    signed_fields,
    signed_fields_digest,
)

DATE = "20260730T120000Z"
DIGEST = hmac.new(b"secret-of-ann", DATE.encode(), hashlib.sha1).digest()


def header(credential: str = "ann", signature: str = DIGEST.hex(), algorithm: str = "MQv2-HMAC-SHA1") -> str:
    return f"{algorithm} Credential={credential}, SignedHeaders=x-mq-date-time, Signature={signature}"


def test_the_digest_is_hmac_sha1_of_the_date() -> None:
    assert header_digest("secret-of-ann", DATE) == DIGEST


@pytest.mark.parametrize(
    "text",
    [
        header(),
        header(signature=DIGEST.hex().upper()),
        header("ann//RocketMQ"),
        header("ann/region/service"),
        header().replace(", ", ","),
        f"  {header()}  ",
    ],
)
def test_every_clients_spelling_is_read(text: str) -> None:
    assert parse_authorization(text) == Authorization("ann", DIGEST)


def test_the_python_clients_empty_credential_is_a_caller_without_a_name() -> None:
    found = parse_authorization(header("", hmac.new(b"", DATE.encode(), hashlib.sha1).hexdigest()))
    assert found is not None
    assert found.name == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Basic YW5uOnNlY3JldA==",
        header(algorithm="MQv2-HMAC-MD5"),
        header(signature="not hex"),
        header(signature=""),
        header(signature=DIGEST.hex()[:-2]),
        header(signature=DIGEST.hex() + "00"),
        header() + ", Credential=root",
        "x" * (MAX_HEADER_CHARACTERS + 1),
        header("ann" * MAX_HEADER_CHARACTERS),
    ],
)
def test_other_headers_are_not_read(text: str) -> None:
    assert parse_authorization(text) is None


def test_fields_are_signed_by_the_order_of_their_names_and_then_the_body() -> None:
    signed = signed_fields(Credentials("ann", "secret"), {"b": "2", "a": "1"}, (b"bo", b"dy"), version=473)
    expected = hmac.new(b"secret", b"ann12body", hashlib.sha1).digest()
    assert signed == {
        "b": "2", "a": "1", "AccessKey": "ann", "Signature": base64.b64encode(expected).decode(),
    }  # fmt: skip


def test_signing_again_gives_the_same_signature() -> None:
    once = signed_fields(Credentials("ann", "secret"), {"topic": "orders"}, (), version=473)
    assert signed_fields(Credentials("ann", "secret"), once, (), version=473) == once


def test_old_clients_leave_the_unique_key_query_out() -> None:
    fields = {"AccessKey": "ann", "_UNIQUE_KEY_QUERY": "true"}
    assert signed_fields_digest("s", fields, (), version=399) == signed_fields_digest(
        "s", {"AccessKey": "ann"}, (), version=399
    )
    assert signed_fields_digest("s", fields, (), version=401) != signed_fields_digest("s", fields, (), version=399)


def test_credentials_do_not_show_their_secret() -> None:
    assert "secret" not in repr(Credentials("ann", "secret"))
