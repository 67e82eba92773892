"""Sigma rules as rules of ours: detections, and correlations of them.

pySigma reads values, modifiers and conditions (the extra `sigma`); only this package imports it, and only when rules
are read. The channels and field names of Windows are in `taxonomy`, what a site adds in `mapping`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.model.errors import ExtraMissing
from millstream.streams.rule_formats.sigma.taxonomy import PATHS, paths_of
from millstream.streams.rules.imported_rules import ImportedRules

if TYPE_CHECKING:
    from millstream.streams.rule_formats.sigma.mapping import EventMapping

__all__ = ["PATHS", "paths_of", "read_rules"]


def read_rules(places: Path | str | Iterable[Path | str], mapping: EventMapping | None = None) -> ImportedRules:
    """The rules of files, and of all .yml and .yaml files below directories, in the order of their paths.

    `mapping` is what a site says of its own events (`read_mapping`).

    What cannot be taken is told with file, line and reason, and stops nothing else. Raises ExtraMissing where pySigma
    is not installed.
    """
    try:
        from millstream.streams.rule_formats.sigma.rule_reader import read
    except ModuleNotFoundError as error:
        raise ExtraMissing("Reading Sigma rules", error.name, extra="sigma") from None
    named = [places] if isinstance(places, (str, Path)) else places
    return read([Path(place) for place in named], mapping)
