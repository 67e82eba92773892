"""A server of S3's protocol for tests: versitygw, which keeps files and checks signatures, where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

__all__ = ["ACCESS_KEY", "BUCKET", "SECRET_KEY", "find_versitygw", "run_versitygw"]

ACCESS_KEY = "millstream"
SECRET_KEY = "millstream-secret"
BUCKET = "cold"

_READY_S = 60


def find_versitygw() -> str | None:
    """The program, of the path or of Go's own directory."""
    found = shutil.which("versitygw")
    own = Path(os.environ.get("GOPATH", Path.home() / "go")) / "bin" / "versitygw"
    return found or (str(own) if own.is_file() else None)


@contextmanager
def run_versitygw(
    program: str, directory: Path, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY
) -> Iterator[str]:
    """The endpoint of a server that runs within the block, with an empty bucket for one user."""
    (directory / BUCKET).mkdir(parents=True)
    port = _free_port()
    command = [program, "--access", access_key, "--secret", secret_key, "--port", f"127.0.0.1:{port}", "posix"]
    process = subprocess.Popen([*command, str(directory)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + _READY_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "versitygw has ended"
                assert time.monotonic() < deadline_s, "versitygw does not listen"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
