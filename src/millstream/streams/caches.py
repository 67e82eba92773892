"""Directories for caches, whose files can be recreated at any time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_directory"]


def cache_directory(name: str, variable: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The directory that the environment's `variable` names, or `name` in the user's directory of caches.

    None where the variable says `off`, or where the user has neither that directory nor a home, as in containers.
    """
    configured = environment.get(variable)
    if configured:
        return None if configured == "off" else Path(configured).absolute()
    home = environment.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "millstream" / name
    except RuntimeError:
        return None
