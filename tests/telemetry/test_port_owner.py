"""Which process listens at an address."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from millstream.telemetry.processes import owner_of, owners_of


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_listening_socket_is_found_as_ours() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert owner_of("127.0.0.1", port) == os.getpid()
        assert owner_of("localhost", port) == os.getpid()
        assert owner_of("192.0.2.1", port) is None
        assert owners_of("127.0.0.1", port) == [os.getpid()]
        assert owners_of("192.0.2.1", port) == []


def test_a_port_at_which_nobody_listens_has_no_owner() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert owner_of("127.0.0.1", bound.getsockname()[1]) is None
    assert owner_of("no-such-host.invalid", 1) is None
