"""An S3 server for tests: moto's, where `moto_server` is on the path or beside Python."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["KEYS", "Bucket", "bucket"]

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
"""What a process needs in its environment to use a bucket."""

_START_S = 120.0


@dataclass(frozen=True)
class Bucket:
    """A bucket, and the port of its server."""

    name: str
    port: int

    def address(self, prefix: str, bucket: str = "") -> str:
        """The address of what lies below a prefix."""
        options = f"endpoint_override=127.0.0.1%3A{self.port}&scheme=http&region=us-east-1"
        return f"s3://{bucket or self.name}/{prefix}?{options}"


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    """A bucket of an S3 server; the test is skipped where there is none."""
    beside = Path(sys.executable).with_name("moto_server")
    program = str(beside) if beside.exists() else shutil.which("moto_server")
    if program is None:
        pytest.skip("there is no moto_server: pip install 'moto[s3]' flask flask-cors")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    name = f"state-{uuid.uuid4().hex[:8]}"
    with pytest.MonkeyPatch.context() as patch:
        for key, value in KEYS.items():
            patch.setenv(key, value)
        server = subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _make_bucket(port, name)
            yield Bucket(name, port)
        finally:
            server.terminate()
            server.wait()


def _make_bucket(port: int, name: str) -> None:
    until_s = time.monotonic() + _START_S
    while True:
        try:
            urllib.request.urlopen(
                urllib.request.Request(f"http://127.0.0.1:{port}/{name}", method="PUT"), timeout=10
            ).close()
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)
        else:
            return
