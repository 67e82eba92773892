"""The connector `datagen`: generated rows, column by column."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import Option, choice, count, duration, flag, text

__all__ = ["DATAGEN"]

_NUMBER = r"-?\d{1,18}(\.\d{1,18})?"

_OPTIONS: tuple[Option, ...] = (
    count("rows-per-second", "Rows a second.", "a number of rows", default="10000"),
    count("number-of-rows", "Rows in all; default: without end.", "a number of rows", least=0),
    choice("fields.#.kind", "How a column's values are made.", "random", "sequence", default="random"),
    text("fields.#.min", "Smallest random value.", pattern=_NUMBER, wanted="a number"),
    text("fields.#.max", "Greatest random value.", pattern=_NUMBER, wanted="a number"),
    duration("fields.#.max-past", "How far a random time lies back at most.", "0 s"),
    count("fields.#.length", "Length of random texts, arrays and maps.", "a number", least=0, default="100"),
    flag("fields.#.var-len", "Whether texts are of any length up to that one."),
    text(
        "fields.#.null-rate",
        "Share of NULL.",
        pattern=r"0(\.\d+)?|1(\.0+)?",
        wanted="a number from 0 to 1",
        default="0",
    ),
    text("fields.#.start", "First value of a sequence.", pattern=_NUMBER, wanted="a number"),
    text("fields.#.end", "Last value of a sequence, with which the table ends.", pattern=_NUMBER, wanted="a number"),
)
"""# is a column."""


def _ends(options: Mapping[str, str]) -> bool:
    return any(name == "number-of-rows" or name.endswith(".end") for name in options)


DATAGEN = Connector(
    "datagen", _OPTIONS, reads=True, source="millstream.streams.connectors.datagen.source:DatagenSource", ends=_ends
)
