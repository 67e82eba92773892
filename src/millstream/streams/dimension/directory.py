"""The directory of all dimension tables of a machine, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from millstream.streams.dimension.versions import VersionStore
from millstream.streams.errors import DimensionError

__all__ = ["DIRECTORY_VARIABLE", "dimension_directory", "find_table", "tables_in"]

DIRECTORY_VARIABLE: Final = "MILLSTREAM_DIMENSIONS"
"""The environment's name of the directory of all dimension tables."""


def dimension_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the dimension tables of this machine are: MILLSTREAM_DIMENSIONS, or in the user's directory of state."""
    configured = environment.get(DIRECTORY_VARIABLE)
    if configured:
        return Path(configured).absolute()
    home = environment.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "millstream" / "dimensions"


def tables_in(root: Path) -> list[VersionStore]:
    """All tables there, by name."""
    directories = sorted(path for path in root.glob("*") if not path.name.startswith(".") and path.is_dir())
    return [store for store in map(VersionStore, directories) if store.note() is not None]


def find_table(root: Path, name: str) -> VersionStore:
    """The table of that name in SQL, or of that id, which is the name of its directory.

    Raises DimensionError DIMENSION_NOT_FOUND, also where several tables have the name.
    """
    tables = tables_in(root)
    by_id = {store.directory.name: store for store in tables}
    if name in by_id:
        return by_id[name]
    named = [store for store in tables if (note := store.note()) is not None and note.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(store.directory.name for store in named)
        words = f"{len(named)} dimension tables are called {name}: other columns or conditions make other tables."
        raise DimensionError("DIMENSION_NOT_FOUND", words, remedy=f"Name one by its id: {ids}.")
    known = [note.name for store in tables if (note := store.note()) is not None]
    near = get_close_matches(name, [*known, *by_id], 1)
    remedy = f"Did you mean {near[0]}?" if near else None
    raise DimensionError("DIMENSION_NOT_FOUND", f"{root} has no dimension table {name}.", remedy=remedy)
