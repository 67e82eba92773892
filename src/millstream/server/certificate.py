"""A certificate of one's own for trying TLS out, made by the program openssl: Python's library makes none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from millstream.model.errors import StartRefused
from millstream.security.tls import TlsFiles
from millstream.store.files import FileLayer

__all__ = ["own_certificate"]

LIFETIME_DAYS: Final = 365
"""How long a certificate that was made here is valid."""

_TIMEOUT_S = 30


def own_certificate(directory: Path, hosts: Iterable[str]) -> TlsFiles:
    """The self-signed certificate in `directory`/tls, made for `hosts` if it is not there yet.

    Raises OPENSSL_MISSING, TLS_FILES, DATA_DIRECTORY_NOT_WRITABLE.
    """
    files = TlsFiles(directory / "tls" / "certificate.pem", directory / "tls" / "key.pem")
    if files.certificate.exists() and files.key.exists():
        return files
    openssl = shutil.which("openssl")
    if openssl is None:
        raise StartRefused("OPENSSL_MISSING", "There is no certificate yet, and the program openssl was not found.")
    try:
        FileLayer().make_directory(files.key.parent)
        made = subprocess.run(_command(openssl, files, hosts), capture_output=True, timeout=_TIMEOUT_S, umask=0o077)
    except subprocess.TimeoutExpired:
        raise StartRefused("TLS_FILES", f"{openssl} did not make a certificate within {_TIMEOUT_S} s.") from None
    except OSError as error:
        raise StartRefused("DATA_DIRECTORY_NOT_WRITABLE", f"{files.key.parent} cannot be used: {error}.") from None
    if made.returncode != 0:
        said = made.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise StartRefused("TLS_FILES", f"{openssl} made no certificate: {' '.join(said)[:300]}")
    # Clients need the certificate, as what they trust; the key stays with its owner.
    files.certificate.chmod(0o644)
    return files


def _command(openssl: str, files: TlsFiles, hosts: Iterable[str]) -> list[str]:
    names = ",".join(_alternative_name(host) for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1", "::1"]))
    return [
        openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", str(files.key), "-out", str(files.certificate), "-days", str(LIFETIME_DAYS),
        "-subj", "/CN=millstream", "-addext", f"subjectAltName={names}",
    ]  # fmt: skip


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
