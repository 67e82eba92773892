"""h2spec, which holds a server to RFC 9113 and RFC 7541, against the gRPC port."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from interop.driver import Missing, install, require
from interop.server import Server

MODULE: Final = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
CASES: Final = 145
"""Cases of that version, the newest that Go knows by this name, without the strict ones."""


@pytest.fixture(scope="module")
def h2spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built from Go's module proxy."""
    folder = tmp_path_factory.mktemp("h2spec")
    try:
        require("go")
        install(["env", f"GOBIN={folder}", "go", "install", MODULE], folder)
    except Missing as missing:
        pytest.skip(f"h2spec cannot run here: {missing}")
    return folder / "h2spec"


def test_the_grpc_port_keeps_all_rules_of_http2_that_h2spec_knows(h2spec: Path, server: Server) -> None:
    host, _, port = server.endpoint.rpartition(":")
    # Seconds for an answer: a busy machine is no fault of the server.
    command = [str(h2spec), "-h", host, "-p", port, "-o", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env={**os.environ})
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", done.stdout)
    assert found is not None, done.stdout + done.stderr
    faults = done.stdout.partition("Failures:")[2]
    assert [int(number) for number in found.groups()][3] == 0, faults
    assert int(found[1]) >= CASES
    assert int(found[2]) + int(found[3]) == int(found[1])
