"""A gateway over played jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from played_jobs import Gateway


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    found = Gateway()
    yield found
    found.sessions.close_all()
