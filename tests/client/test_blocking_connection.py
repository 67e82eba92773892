"""One blocking connection in a process that has many files open."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from servers import Servers

_BEYOND_SELECT = 1100
"""More descriptors than select() takes, which is 1,024."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """More open descriptors than select() can name."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _BEYOND_SELECT + 400
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this machine allows {hard} open files, and the test needs {needed}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(_BEYOND_SELECT)]
    yield
    for descriptor in held:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_connection_of_a_high_descriptor_is_used_again(servers_in_thread: Servers) -> None:
    with BlockingClient(servers_in_thread.nameserver) as client:
        client.create_topic(TopicConfig("one"))
        client.create_topic(TopicConfig("two"))
        assert len(client.queues("two")) == 4
