"""Request signatures: HMAC-SHA1 with the user's secret, in the two forms of RocketMQ's clients.

gRPC: the header `authorization: MQv2-HMAC-SHA1 Credential=NAME, SignedHeaders=x-mq-date-time, Signature=HEX` signs the
value of the header x-mq-date-time. Go's client writes `Credential=NAME//SERVICE`; the case of the hex digits differs.

Remoting: the fields AccessKey and Signature; what is signed are the values of all other fields (AccessKey and
SecurityToken among them) in the order of their names, then the body. Neither form signs which request it is.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "ACCESS_KEY",
    "MAX_HEADER_CHARACTERS",
    "SIGNATURE",
    "Authorization",
    "Credentials",
    "client_id_signature",
    "decoded_signature",
    "header_digest",
    "parse_authorization",
    "signed_fields",
    "signed_fields_digest",
]

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
"""Fields of a remoting request that name who signed it and how."""

MAX_HEADER_CHARACTERS: Final = 2_048
"""Characters of an authorization header at most; an honest one has about 150."""

_ALGORITHM = "MQv2-HMAC-SHA1"
_DIGEST_BYTES = 20
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_LAST_VERSION_WITHOUT_UNIQUE_KEY_QUERY = 399
"""The ordinal of RocketMQ 4.9.3: clients up to it leave that field out of what they sign."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """What an authorization header says: who signed, and the digest."""

    name: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client signs with."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r})"


def parse_authorization(header: str) -> Authorization | None:
    """What the header says; None where it is not of the form above. The name is blank where the client has none."""
    if len(header) > MAX_HEADER_CHARACTERS:
        return None
    algorithm, _, rest = header.strip().partition(" ")
    pairs = [part.strip().partition("=") for part in rest.split(",")]
    fields = {name: value for name, _, value in pairs}
    if algorithm != _ALGORITHM or len(fields) != len(pairs):
        return None
    try:
        digest = bytes.fromhex(fields.get("Signature", ""))
    except ValueError:
        return None
    name = fields.get("Credential", "").partition("/")[0].strip()
    if name and len(digest) != _DIGEST_BYTES:
        return None
    return Authorization(name, digest)


def header_digest(secret: str, date_time: str) -> bytes:
    """The digest over a gRPC call's x-mq-date-time."""
    return hmac.new(secret.encode(), date_time.encode(), "sha1").digest()


def client_id_signature(secret: str, client_id: str) -> bytes:
    """The Base64 text that RocketMQ MQTT's clients send as their password: HMAC-SHA1 of the client id."""
    return base64.b64encode(hmac.new(secret.encode(), client_id.encode(), "sha1").digest())


def signed_fields_digest(
    secret: str, ext: Mapping[str, str], parts: Iterable[bytes | memoryview], *, version: int
) -> bytes:
    """The digest over a remoting request's fields and the parts of its body. `version` is the sender's."""
    old = version <= _LAST_VERSION_WITHOUT_UNIQUE_KEY_QUERY
    left_out = (SIGNATURE, _UNIQUE_KEY_QUERY) if old else (SIGNATURE,)
    fields = "".join([ext[name] for name in sorted(ext) if name not in left_out]).encode("utf-8", "surrogatepass")
    # Not hmac.digest: where OpenSSL looks the algorithm up by its name, a call takes 9 µs instead of 5.
    state = hmac.new(secret.encode(), fields, "sha1")
    for part in parts:
        state.update(part)
    return state.digest()


def signed_fields(
    credentials: Credentials, ext: Mapping[str, str], parts: Iterable[bytes | memoryview], *, version: int
) -> dict[str, str]:
    """The fields of a request with the two that sign it."""
    named = {**ext, ACCESS_KEY: credentials.access_key}
    digest = signed_fields_digest(credentials.secret_key, named, parts, version=version)
    return {**named, SIGNATURE: base64.b64encode(digest).decode()}


def decoded_signature(text: str) -> bytes:
    """The digest of a Signature field; blank bytes where it is no Base64."""
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""
