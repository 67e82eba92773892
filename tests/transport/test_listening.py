from __future__ import annotations

import errno
import os
import socket
import sys

import pytest

from millstream.transport.listening import listen_refused, port_holder


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_holder_of_a_port_is_found(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip(f"no {host}")
        listener.listen()
        port = listener.getsockname()[1]
        assert port_holder(port) == os.getpid()
        assert f"process {os.getpid()}" in listen_refused(host, port, OSError(errno.EADDRINUSE, "in use")).message
    assert port_holder(port) is None


def test_a_port_without_permission_says_so() -> None:
    error = listen_refused("127.0.0.1", 80, PermissionError(errno.EACCES, "Permission denied"))
    assert error.name == "BAD_CONFIGURATION"
    assert "127.0.0.1:80" in error.message
