"""Sigma rules as rules of ours: detections for Windows events, and correlations of them.

pySigma reads values, modifiers and conditions (the extra `sigma`); only this package imports it, and only when rules
are read. The log sources and field names of Sigma are in `taxonomy`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from millstream.model.errors import ExtraMissing
from millstream.streams.rules.imported import FromFiles
from millstream.streams.rules.sigma.taxonomy import PATHS, paths_of

__all__ = ["PATHS", "paths_of", "read_rules"]


def read_rules(places: Path | str | Iterable[Path | str]) -> FromFiles:
    """The rules of files, and of all .yml and .yaml files below directories, in the order of their paths.

    What cannot be taken is told with file, line and reason, and stops nothing else. Raises ExtraMissing where pySigma
    is not installed.
    """
    try:
        from millstream.streams.rules.sigma.reading import read
    except ModuleNotFoundError as error:
        raise ExtraMissing("Reading Sigma rules", error.name, extra="sigma") from None
    return read([Path(places)] if isinstance(places, (str, Path)) else [Path(place) for place in places])
