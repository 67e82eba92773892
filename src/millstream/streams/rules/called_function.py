"""Python functions that rules call, by their stored names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

__all__ = ["function_of"]

_MOVED: Final = {"millstream.streams.rules.sigma.times": "millstream.streams.rule_formats.sigma.times"}
"""Modules of ours that stand in stored rules and in plans by the name that they had: names outlive a move."""


def function_of(path: str) -> Callable[..., Any]:
    """The function that `package.module:name` names. Raises ImportError and AttributeError."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(_MOVED.get(module, module)), name)
    return function
