"""TLS: the server's certificate, reloadable while serving, and the trust settings of clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from millstream.model.errors import StartRefused

__all__ = ["CLIENT_HELLO", "SYSTEM_ROOTS", "ServerIdentity", "TlsFiles", "TlsMode", "client_context"]

CLIENT_HELLO: Final = 0x16
"""The first byte of a TLS connection; no frame of remoting and no HTTP/2 connection begins with it."""

SYSTEM_ROOTS: Final = "system"
"""In the place of a file of trusted certificates: those that the machine trusts."""


class TlsMode(Enum):
    """Whether plaintext is answered beside TLS, on the same ports. AUTO does where there is a certificate or one can be
    made, as PERMISSIVE; else plaintext alone is answered."""

    AUTO = "auto"
    PERMISSIVE = "permissive"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate chain and its key, in PEM."""

    certificate: Path
    key: Path


class ServerIdentity:
    """What a server shows to its clients. `version` grows when it has changed; open connections keep the old one."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files; TLS_FILES where they cannot be used."""
        self._files = files
        self.version = 0
        self.context = _server_context(files)
        self.http2_context = _server_context(files)
        """The same for clients of gRPC, which ask for HTTP/2 in the handshake and go without that answer."""
        self.http2_context.set_alpn_protocols(["h2"])
        self.key_pem, self.chain_pem = _read(files)

    def reload(self) -> None:
        """Read the files again; TLS_FILES, and the old ones hold, where they cannot be used."""
        _server_context(self._files)
        self.key_pem, self.chain_pem = _read(self._files)
        for context in (self.context, self.http2_context):
            context.load_cert_chain(self._files.certificate, self._files.key)
        self.version += 1


def client_context(trusted: str) -> ssl.SSLContext:
    """Trusts the certificates of the file `trusted`, or the machine's (`SYSTEM_ROOTS`), for the host's own name only.

    TLS_FILES where the file cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=None if trusted == SYSTEM_ROOTS else trusted)
    except (OSError, ssl.SSLError) as error:
        raise StartRefused(
            "TLS_FILES",
            f"The trusted certificates {trusted} cannot be used: {error}.",
            remedy="Name a file of certificates in PEM.",
        ) from None


def _server_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that asks whether its peer has said anything unasked would take a ticket for that.
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise StartRefused(
            "TLS_FILES", f"The certificate {files.certificate} with the key {files.key} cannot be used: {error}."
        ) from None
    return context


def _no_password() -> str:
    """Without it OpenSSL would ask at the terminal for the password of an encrypted key."""
    raise ValueError("the key is encrypted, and a server cannot ask for its password")


def _read(files: TlsFiles) -> tuple[bytes, bytes]:
    try:
        return files.key.read_bytes(), files.certificate.read_bytes()
    except OSError as error:
        raise StartRefused("TLS_FILES", f"The certificate or its key cannot be read: {error}.") from None
