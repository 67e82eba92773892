"""Certificates for tests, made by the same call as those of quickstart."""

from __future__ import annotations

import shutil
import ssl
import time
from pathlib import Path

import pytest

from millstream.security.tls import ServerIdentity, TlsFiles
from millstream.server.certificate import own_certificate

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def identity_in(directory: Path) -> tuple[ServerIdentity, TlsFiles]:
    """What a server shows, and the files of it."""
    files = own_certificate(directory, ["127.0.0.1"], time.time())
    return ServerIdentity(files), files


def trusting(files: TlsFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=files.certificate)
