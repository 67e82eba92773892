"""The garbage collector in Python workers, which looks for cycles among millions of values that have none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["TaskEndCollector", "collector_paused"]


class TaskEndCollector:
    """In the place of the module `gc` where PySpark looks for cycles behind each task.

    What is alive between two tasks stays, as a rule: modules, and the state that operators and rules keep. It is set
    aside, so that each value is looked at once. What a task makes is not, since it is over. Who drops something that
    holds cycles calls `gc.unfreeze()`: the next task's end looks at everything again.
    """

    @staticmethod
    def collect() -> None:
        """Free what the task has left behind, and set aside what lives on."""
        gc.collect()
        gc.freeze()


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without looks for cycles meanwhile: plain values have none, and looking at them costs up to half of the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
