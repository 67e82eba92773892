"""Workers of a local session are talked to over Unix sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.streams.spark.runtime.session import socket_settings


def test_workers_are_talked_to_over_sockets_in_the_directory() -> None:
    settings = socket_settings(Path("/tmp/millstream-python-1"))
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    assert settings["spark.python.unix.domain.socket.dir"] == "/tmp/millstream-python-1"


@pytest.mark.parametrize("name", ["d" * 60, "é" * 30])
def test_a_directory_whose_name_leaves_no_room_for_a_socket_is_not_used(name: str) -> None:
    assert socket_settings(Path("/" + name)) == {}
    assert socket_settings(Path("/" + name[:-1])) != {}
