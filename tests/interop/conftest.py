"""Servers for the official clients: one in this process, one as a program, each shared by all tests of a run."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator

import pytest
from composition import Running, as_a_program, in_this_process

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def loop_of_the_thread() -> Iterator[None]:
    """The official client asks for the event loop of its caller's thread; asynchronous tests may have taken it away."""
    policy = asyncio.get_event_loop_policy()
    made: asyncio.AbstractEventLoop | None = None
    try:
        policy.get_event_loop()
    except RuntimeError:
        made = asyncio.new_event_loop()
        policy.set_event_loop(made)
    yield
    if made is not None:
        policy.set_event_loop(None)
        made.close()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with as_a_program(tmp_path_factory.mktemp("program")) as running:
        yield running


@pytest.fixture(scope="session")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with in_this_process(tmp_path_factory.mktemp("in-process")) as running:
        yield running


@pytest.fixture(params=["program", "in_process"])
def anywhere(request: pytest.FixtureRequest) -> Running:
    """Both servers, one after the other."""
    running: Running = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Names that no other test of the run has, for topics and groups."""
    return lambda kind: f"{kind}-{next(_numbers)}"
