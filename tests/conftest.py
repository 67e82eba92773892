"""Fixtures for all suites. This file also lets them import `servers` from this folder."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import settings

from costs import COSTLY, StartedPrograms
from example_counts import FREE_EXAMPLES, QUICK_EXAMPLES, THOROUGH_EXAMPLES
from millstream.store import commit_log
from servers import Servers, running_servers, running_servers_in_thread
from smoke_tests import SMOKE

MAX_LEFT_DESCRIPTORS = 64
"""Descriptors that a test may leave open: all tests run in one process, and 1,024 are a usual limit."""


LOOP_VARIABLE = "MILLSTREAM_TEST_LOOP"
"""With `uvloop` in it, all tests of this process run on that event loop, which servers take where it is installed."""


RESERVED_BYTES = 1024 * 1024
"""Room that a log reserves at a time: the product's 64 MiB for each of the stores of a run fill a disk."""


# What a test computes is over before Java's second compiler has earned back what it takes. Children inherit it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# What the tests keep for later, Spark's classes and compiled expressions, is none of the user's.
os.environ.setdefault("MILLSTREAM_CLASS_ARCHIVES", str(Path(__file__).parent.parent / ".build" / "classes"))
os.environ.setdefault("MILLSTREAM_PATTERN_DATABASES", str(Path(__file__).parent.parent / ".build" / "patterns"))

# A machine that is busy with something else is no fault of what a test looks at. `make test` and `make test-compiled`
# try the same examples in every run, `make test-all` draws new ones, `--hypothesis-profile thorough` looks for long.
# What is found becomes an example of the property's own.
settings.register_profile(
    "quick", deadline=None, max_examples=QUICK_EXAMPLES, stateful_step_count=25, derandomize=True, database=None
)
settings.register_profile("fixed", deadline=None, max_examples=FREE_EXAMPLES, derandomize=True, database=None)
settings.register_profile("free", deadline=None, max_examples=FREE_EXAMPLES, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=THOROUGH_EXAMPLES, print_blob=True)
settings.load_profile("free")

_SMOKE = frozenset(SMOKE)
_open_before = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Have the markers of cost checked, and the loop that was asked for taken."""
    config.pluginmanager.register(StartedPrograms())
    if os.environ.get(LOOP_VARIABLE) == "uvloop":
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what costs little, and what `make test` runs though it costs more."""
    tests = str(Path(__file__).parent) + os.sep
    for item in items:
        place = str(item.path).removeprefix(tests) + item.nodeid[item.nodeid.find("::") :]
        names = {place, place.partition("[")[0], place.partition("::")[0]}
        if names & _SMOKE:
            item.add_marker("smoke")
        if not any(item.get_closest_marker(cost) for cost in COSTLY):
            item.add_marker("unit")


@pytest.fixture(autouse=True)
def _count_descriptors(request: pytest.FixtureRequest) -> None:
    """Before the test's own fixtures and after those that it shares with others."""
    request.node.stash[_open_before] = _descriptors()


@pytest.fixture(scope="session", autouse=True)
def _small_reservations() -> None:
    commit_log.ALLOCATION_BYTES = RESERVED_BYTES


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail a test that leaves many descriptors open; after pytest has let go of its log, which may hold errors."""
    yield
    before = item.stash.get(_open_before, None)
    if before is not None and _descriptors() - before > MAX_LEFT_DESCRIPTORS:
        gc.collect()
        left = _descriptors() - before
        assert left <= MAX_LEFT_DESCRIPTORS, f"the test left {left} descriptors open"


def _descriptors() -> int:
    """How many this process has open; 0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except FileNotFoundError:
        return 0


@pytest_asyncio.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    """A nameserver and a broker in this test's event loop."""
    async with running_servers(tmp_path / "data") as running:
        yield running


@pytest.fixture
def servers_in_thread(tmp_path: Path) -> Iterator[Servers]:
    """A nameserver and a broker in a thread, for tests that block."""
    with running_servers_in_thread(tmp_path / "data") as running:
        yield running
