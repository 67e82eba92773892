"""The pytest plugin: one fixture, `stream_test`. Spark starts with the first job.

It is found by pytest's entry points; `-p no:millstream` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from millstream.testing.stream_test import Plannable, StreamTest

__all__ = ["stream_test"]


@pytest.fixture
def stream_test() -> Callable[..., StreamTest]:
    """Makes a `StreamTest` of a script or a builder; all tests of a run share one Spark session."""

    def make(job: str | Plannable, **options: Any) -> StreamTest:
        from millstream.testing.stream_test import StreamTest

        return StreamTest(job, **options)

    return make
