"""What the garbage collector of Python workers looks at."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.spark.runtime.micro_batch import TaskEndCollector, collector_paused


class Cycle:
    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def nothing_is_set_aside() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_lives_on_behind_a_task_is_set_aside_and_the_cycles_of_the_task_are_freed() -> None:
    state, gone = [[1], [2]], weakref.ref(Cycle())
    TaskEndCollector.collect()
    assert gone() is None
    assert not any(one is state for one in gc.get_objects())
    # Without a cycle a value goes as ever, set aside or not.
    kept = Cycle()
    kept.own = None  # type: ignore[assignment]
    seen = weakref.ref(kept)
    TaskEndCollector.collect()
    del kept
    assert seen() is None


def test_cycles_that_were_set_aside_are_freed_when_all_is_looked_at_again() -> None:
    kept = Cycle()
    seen = weakref.ref(kept)
    TaskEndCollector.collect()
    del kept
    TaskEndCollector.collect()
    assert seen() is not None
    gc.unfreeze()
    TaskEndCollector.collect()
    assert seen() is None


@pytest.mark.parametrize("was_on", [True, False])
def test_a_pause_ends_as_it_began(was_on: bool) -> None:
    gc.enable() if was_on else gc.disable()
    try:
        with suppress(ValueError), collector_paused():
            assert not gc.isenabled()
            raise ValueError("within")
        assert gc.isenabled() == was_on
    finally:
        gc.enable()
