"""Creates a self-signed certificate with the program openssl, because Python's library cannot."""

from __future__ import annotations

import fcntl
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from millstream.model.errors import StartRefused
from millstream.security.tls import TlsFiles
from millstream.store.files import FileLayer

__all__ = ["LIFETIME_DAYS", "RENEWAL_DAYS", "OwnCertificate", "own_certificate", "read_own_certificate"]

LIFETIME_DAYS: Final = 365
"""Days for which a certificate that was made here is valid."""

RENEWAL_DAYS: Final = 30
"""Days before its end from which on it is renewed."""

_TIMEOUT_S = 30
_DAY_S = 86_400
_NAME = "millstream"
_ALWAYS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """What a certificate that was made here says: for which hosts, and until when, in seconds since 1970."""

    hosts: frozenset[str]
    end_s: int

    def holds(self, hosts: Iterable[str], now_s: float) -> bool:
        """Whether it is for all these hosts and does not end within `RENEWAL_DAYS`."""
        return now_s < self.end_s - RENEWAL_DAYS * _DAY_S and self.hosts.issuperset(map(_plain, hosts))


def own_certificate(directory: Path, hosts: Iterable[str], now_s: float) -> TlsFiles:
    """The self-signed certificate in `directory`/tls. It is made where there is none, and rebuilt, with the same
    key, where one that was made here ends soon or is not for one of the `hosts`; others are left as they are.

    Raises OPENSSL_MISSING, TLS_FILES, DATA_DIRECTORY_NOT_WRITABLE.
    """
    folder = directory / "tls"
    files = TlsFiles(folder / "certificate.pem", folder / "key.pem")
    wanted = [*hosts, *_ALWAYS]
    if _is_good(files, wanted, now_s):
        return files
    try:
        FileLayer().make_directory(folder)
        with _alone_in(folder):
            # Another start may have made it in the meantime.
            if not _is_good(files, wanted, now_s):
                known = read_own_certificate(files.certificate)
                _make(files, [*wanted, *sorted(known.hosts if known else ())])
    except OSError as error:
        raise StartRefused("DATA_DIRECTORY_NOT_WRITABLE", f"{folder} cannot be used: {error}.") from None
    return files


def read_own_certificate(file: Path) -> OwnCertificate | None:
    """What the certificate in the file says; None where it was not made here, or cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(file)
        found: list[Any] = context.get_ca_certs()
    except (OSError, ssl.SSLError):
        return None
    if len(found) != 1 or found[0]["subject"] != ((("commonName", _NAME),),):
        return None
    hosts = frozenset(_plain(host) for _, host in found[0].get("subjectAltName", ()))
    return OwnCertificate(hosts, ssl.cert_time_to_seconds(found[0]["notAfter"]))


def _is_good(files: TlsFiles, hosts: Iterable[str], now_s: float) -> bool:
    if not files.certificate.exists() or not files.key.exists():
        return False
    known = read_own_certificate(files.certificate)
    return known is None or known.holds(hosts, now_s)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two starts at once must not leave the key of one beside the certificate of the other."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make(files: TlsFiles, hosts: Iterable[str]) -> None:
    """Each file comes to its place whole, the key first: a start that was cut off left nothing that does not fit."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise StartRefused("OPENSSL_MISSING", "There is no certificate that holds, and the program openssl is missing.")
    new = TlsFiles(files.certificate.with_suffix(".new"), files.key.with_suffix(".new"))
    has_key = files.key.exists()
    command = _command(openssl, new.certificate, files.key if has_key else new.key, hosts, has_key=has_key)
    try:
        made = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, umask=0o077)
        if made.returncode != 0:
            last_line = made.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise StartRefused("TLS_FILES", f"{openssl} made no certificate: {' '.join(last_line)[:300]}")
        if not has_key:
            new.key.replace(files.key)
        # Clients need the certificate, as what they trust; the key stays with its owner.
        new.certificate.chmod(0o644)
        new.certificate.replace(files.certificate)
    except subprocess.TimeoutExpired:
        raise StartRefused("TLS_FILES", f"{openssl} did not make a certificate within {_TIMEOUT_S} s.") from None
    finally:
        new.key.unlink(missing_ok=True)
        new.certificate.unlink(missing_ok=True)


def _command(openssl: str, certificate: Path, key: Path, hosts: Iterable[str], *, has_key: bool) -> list[str]:
    names = ",".join(_alternative_name(host) for host in dict.fromkeys(map(_plain, hosts)))
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key)]
    return [
        openssl, "req", "-x509", *(["-key", str(key)] if has_key else new_key),
        "-out", str(certificate), "-days", str(LIFETIME_DAYS),
        "-subj", f"/CN={_NAME}", "-addext", f"subjectAltName={names}",
    ]  # fmt: skip


def _plain(host: str) -> str:
    """A host in the one way in which names and addresses are compared."""
    try:
        return str(ip_address(host.strip()))
    except ValueError:
        return host.lower()


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
