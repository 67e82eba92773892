"""The site of a process: listening and advertised addresses, TLS and access control."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, field
from pathlib import Path

from millstream.broker.access_file import open_access_book
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import StartRefused
from millstream.security.guard import AuditLog, Guard
from millstream.security.signature import Credentials
from millstream.security.tls import ServerIdentity, TlsFiles, TlsMode
from millstream.security.users import AccessBook
from millstream.server.access import open_guard
from millstream.server.certificate import own_certificate, read_own_certificate
from millstream.telemetry.processes import descriptor_limit, raise_descriptor_limit
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.strangers import StrangerLog

__all__ = ["Site"]

_log = logging.getLogger(__name__)

_WILDCARDS = ("", "0.0.0.0", "::")
_NO_CERTIFICATE = ("OPENSSL_MISSING", "TLS_FILES")


@dataclass(slots=True)
class Site:
    """One for all roles of a process. `told_host` is what clients are told to connect to, where that is set.

    `tls` answers TLS on all ports, with `tls_files` or a certificate of its own; None does not. `secure` turns access
    control on; a directory without a super user gets `first_user`, or `admin` with a random secret.
    """

    host: str = "127.0.0.1"
    announced_host: str | None = None
    secure: bool = False
    first_user: Credentials | None = None
    tls: TlsMode | None = None
    tls_files: TlsFiles | None = None
    clock: Clock = field(default_factory=SystemClock)
    memory: ConnectionMemory = field(default_factory=ConnectionMemory)
    """What the connections of all ports for clients hold."""
    guard: Guard | None = None
    """Who may do what; None while everybody may, and until `open_access_control`."""
    made_user: Credentials | None = None
    """The super user that this start had to make."""
    identity: tuple[ServerIdentity, TlsMode] | None = None
    """What is shown to TLS clients; None without TLS, and until `open_tls`."""
    _own_directory: Path | None = None
    """Where the certificate is one that was made here."""

    descriptors: DescriptorBudget = field(default_factory=lambda: DescriptorBudget.of_limit(descriptor_limit()))
    """What connections to all ports may take."""
    strangers: StrangerLog = field(init=False)
    """What they do wrong."""

    def __post_init__(self) -> None:
        self.strangers = StrangerLog(self.clock)

    @property
    def reachable_host(self) -> str:
        """What clients can connect to: the host that they are told, or this machine's own name for all addresses."""
        if self.announced_host is not None:
            return self.announced_host
        if self.host not in _WILDCARDS:
            return self.host
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return "127.0.0.1"

    def open_descriptors(self) -> None:
        """Raise the limit of descriptors as far as the system allows; connections have what it leaves beside files."""
        self.descriptors = DescriptorBudget.of_limit(raise_descriptor_limit())

    def open_tls(self, directory: Path) -> None:
        """Read the certificate, or make one in `directory`. Raises TLS_FILES, OPENSSL_MISSING.

        Where it cannot be made, and TLS was not asked for, the log says so and plaintext alone is answered.
        """
        if self.tls is None:
            return
        mode = TlsMode.PERMISSIVE if self.tls is TlsMode.AUTO else self.tls
        if self.tls_files is None:
            self._own_directory = directory
        try:
            files = self.tls_files or self._own_certificate(directory)
            self.identity = ServerIdentity(files), mode
        except StartRefused as error:
            if self.tls is not TlsMode.AUTO or self.tls_files is not None or error.name not in _NO_CERTIFICATE:
                raise
            _log.warning("%s Until then plaintext alone is answered.", error)

    def reload_certificate(self) -> None:
        """Read the certificate again, for new connections; where that fails the log says so and the old one holds."""
        if self.identity is None:
            return
        try:
            if self._own_directory is not None:
                self._own_certificate(self._own_directory)
            self.identity[0].reload()
        except StartRefused as error:
            _log.error("%s", error)

    def renew_certificate(self) -> None:
        """Make the certificate again if it was made here and ends soon; other than that nothing is read or changed."""
        if self.identity is None or self._own_directory is None:
            return
        known = read_own_certificate(self._own_directory / "tls" / "certificate.pem")
        if known is not None and not known.holds((), self.clock.now_ms() / 1000):
            self.reload_certificate()

    def _own_certificate(self, directory: Path) -> TlsFiles:
        return own_certificate(directory, [self.reachable_host], self.clock.now_ms() / 1000)

    def open_access_control(self, directory: Path, book: AccessBook | None = None, *, makes_user: bool = True) -> None:
        """Ask for users from now on where access control is on; warns where there are users and it is off.

        `book` holds the users of a broker. Without one they are read from `directory`, which the caller has locked.
        `makes_user`: a super user is made where there is none; a replica has those of its master alone.
        """
        book = book or open_access_book(directory)
        if self.secure and not makes_user:
            self.guard = Guard(book, AuditLog(self.clock), clock=self.clock)
        elif self.secure:
            self.guard, self.made_user = open_guard(book, directory, self.clock, self.first_user)
        elif book.users():
            _log.warning("%s has users, but access control is off: everybody may do everything.", directory)
