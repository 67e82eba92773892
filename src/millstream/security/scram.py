"""The server's side of SCRAM-SHA-256: each side shows that it knows the secret, which goes nowhere. Pure.

Source: RFC 5802 and RFC 7677, without channel binding. Secrets are kept in clear, so the salt is the server's own for
each name, and unknown names have one as well: nobody learns which names there are.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache
from hashlib import pbkdf2_hmac, sha256
from typing import Final

__all__ = ["ITERATIONS", "MAX_SCRAM_BYTES", "SCRAM_SHA_256", "ScramExchange"]

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
"""The name of the method."""

ITERATIONS: Final = 4096
"""How often a secret is hashed: the least that RFC 7677 allows, because the secret is random and not a word."""

MAX_SCRAM_BYTES: Final = 2048
"""Bytes of a client's message at most."""

_KEPT_KEYS: Final = 1024
_SALT_BYTES: Final = 16
_FIRST: Final = re.compile(r"([ny],,)(n=((?:[^,=]|=2C|=3D)+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.DOTALL)
_FINAL: Final = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=([A-Za-z0-9+/=]+)", re.DOTALL)


class ScramExchange:
    """One authentication. `secret_of` gives the secret of a name, and some text for a name that nobody has; `key` is
    the server's own, random and the same for all exchanges; `nonce` is random and used once."""

    def __init__(self, secret_of: Callable[[str], str], key: bytes, nonce: str) -> None:
        self.name = ""
        """Who wants to be let in, from `begin` on."""
        self._secret_of = secret_of
        self._key = key
        self._nonce = nonce
        self._header = b""
        self._server_nonce = ""
        self._salt = b""

    def begin(self, message: bytes) -> bytes:
        """The answer to a client's first message. ValueError with what is wrong."""
        found = _FIRST.fullmatch(_text(message))
        if found is None:
            raise ValueError("the first message is not of SCRAM without channel binding")
        self._header = found[1].encode()
        self.name = found[3].replace("=2C", ",").replace("=3D", "=")
        self._nonce = found[4] + self._nonce
        self._salt = hmac.digest(self._key, self.name.encode(), "sha256")[:_SALT_BYTES]
        answer = f"r={self._nonce},s={b64encode(self._salt).decode()},i={ITERATIONS}"
        self._server_nonce = f"{found[2]},{answer}"
        return answer.encode()

    def end(self, message: bytes) -> tuple[bool, bytes]:
        """Whether the client's last message shows that it knows the secret, and the proof that the server does.
        ValueError with what is wrong."""
        found = _FINAL.fullmatch(_text(message))
        if found is None:
            raise ValueError("the last message is not of SCRAM")
        try:
            header, proof = b64decode(found[2], validate=True), b64decode(found[4], validate=True)
        except ValueError:
            raise ValueError("the last message has text that is no Base64") from None
        if header != self._header or found[3] != self._nonce or len(proof) != sha256().digest_size:
            raise ValueError("the last message is of another exchange")
        signed = f"{self._server_nonce},{found[1]}".encode()
        stored_key, server_key = _keys(self._secret_of(self.name), self._salt)
        signature = hmac.digest(stored_key, signed, "sha256")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_known = hmac.compare_digest(sha256(client_key).digest(), stored_key)
        return is_known, b"v=" + b64encode(hmac.digest(server_key, signed, "sha256"))


@lru_cache(maxsize=_KEPT_KEYS)
def _keys(secret: str, salt: bytes) -> tuple[bytes, bytes]:
    """The stored key and the server key of a secret."""
    salted = pbkdf2_hmac("sha256", secret.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256")


def _text(message: bytes) -> str:
    if len(message) > MAX_SCRAM_BYTES:
        raise ValueError(f"a message has {len(message):,} bytes; {MAX_SCRAM_BYTES:,} are taken")
    return message.decode()
