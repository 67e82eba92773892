"""How many examples a property with a number of its own draws: fewer in `make test`, more where one looks for long."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

__all__ = ["FREE_EXAMPLES", "QUICK_EXAMPLES", "THOROUGH_EXAMPLES", "scaled"]

QUICK_EXAMPLES: Final = 10
"""Examples of a property in `make test`."""

FREE_EXAMPLES: Final = 40
"""Examples of a property in `make test-all`."""

THOROUGH_EXAMPLES: Final = 1_000
"""Examples with `--hypothesis-profile thorough`."""


def scaled(examples: int) -> int:
    """As many of the `examples` of `make test-all` as the profile draws of its own; at least one."""
    current = settings.default
    assert current is not None
    return max(1, examples * current.max_examples // FREE_EXAMPLES)
