"""`millstream error`: the error catalogue."""

from __future__ import annotations

import sys

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.model.catalogue import CATALOGUE, find_entry

__all__ = ["explain", "list_errors"]


def explain(number: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Say what an error means and what to do.

    Parameters
    ----------
    number
        The number as printed, with or without MS-.
    """
    digits = number.upper().removeprefix("MS-")
    entry = find_entry(int(digits)) if digits.isdecimal() else None
    if entry is None:
        print(f"error: there is no error {number}; millstream error list shows all.", file=sys.stderr)
        return ExitCode.REFUSED
    Printer(common.output).record(
        {"number": f"MS-{entry.number}", "name": entry.name, "meaning": entry.meaning, "remedy": entry.remedy},
        sentence=f"MS-{entry.number} {entry.name}\n{entry.meaning}\n{entry.remedy}",
    )
    return ExitCode.DONE


def list_errors(*, common: CommonOptions = CommonOptions()) -> int:
    """List all errors by number."""
    rows = [(f"MS-{entry.number}", entry.name, entry.meaning, entry.remedy) for entry in CATALOGUE.values()]
    Printer(common.output).listing(("number", "name", "meaning", "remedy"), rows, empty="There are no errors.")
    return ExitCode.DONE
