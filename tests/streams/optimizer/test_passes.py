"""The list of passes names each of them once, in the order of when they run, and what it names is there."""

from __future__ import annotations

from pathlib import Path

from millstream.streams import optimizer
from millstream.streams.optimizer.passes import PASSES, When

PARTS = {"__init__", "costs", "explain", "passes", "scan_predicates"}
"""Files of the optimizer that hold no pass, but what passes are made of and what is said of them."""


def test_each_file_of_the_optimizer_is_a_pass_of_the_list_or_a_part_of_passes() -> None:
    assert optimizer.__file__ is not None
    files = {file.stem for file in Path(optimizer.__file__).parent.glob("*.py")}
    assert files - PARTS == {one.name for one in PASSES}
    assert len(PASSES) == len({one.name for one in PASSES})


def test_passes_stand_in_the_order_in_which_a_job_meets_them() -> None:
    order = list(When)
    places = [order.index(one.when) for one in PASSES]
    assert places == sorted(places)
