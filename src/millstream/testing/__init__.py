"""The test kit for users' jobs: rows in, event time, micro-batches cut by choice, crashes, and the batch beside them.

    from millstream.testing import StreamTest

Importing it is cheap: pytest does so in every run. Spark starts when a test runs its job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.testing.feed import FedMessage
    from millstream.testing.results import FailedRow, Letter, Results
    from millstream.testing.stream_test import StreamTest

__all__ = ["FailedRow", "FedMessage", "Letter", "Results", "StreamTest"]

_MODULES = {
    "FailedRow": "results",
    "FedMessage": "feed",
    "Letter": "results",
    "Results": "results",
    "StreamTest": "stream_test",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
