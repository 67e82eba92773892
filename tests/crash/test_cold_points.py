"""The lives of S22 can come to the points at which they are to be killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.cold_load import objects_of
from crash.cold_points import COLD_POINTS

SEED_THAT_IGNORES = 1
"""With it the store of a life ignores conditions."""


@pytest.mark.parametrize("point", ["object-written", "object-there"])
def test_a_life_that_ends_where_an_object_is_linked_has_a_store_that_keeps_conditions(
    tmp_path: Path, point: str
) -> None:
    (tmp_path / "objects").mkdir()
    assert objects_of(tmp_path, SEED_THAT_IGNORES, 0.08, "commit").ignores_conditions
    assert not objects_of(tmp_path, SEED_THAT_IGNORES, 0.08, point).ignores_conditions
    assert COLD_POINTS[point].method == "link"
