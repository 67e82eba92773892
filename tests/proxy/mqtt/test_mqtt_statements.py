"""The table of the specification's statements is whole, and the tests that it names are there."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent.parent

NUMBERS = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12,
    "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1,
    "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2,
    "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3, "3.15.1": 1,
    "3.15.2": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2, "4.6.0": 6,
    "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7, "4.12.1": 2, "4.13.1": 1,
    "4.13.2": 1, "6.0.0": 4,
}  # fmt: skip
"""How many statements each section has."""

MISSING = {"2.2.1-1", "3.1.3-10", "3.3.4-5"}
"""Numbers that the specification does not give."""


def test_each_statement_is_in_the_table_once_and_each_test_is_there() -> None:
    table = tomllib.loads((HERE / "statements.toml").read_text())
    held = table["held"]
    named = [one for statements in held.values() for one in statements if " " not in one]
    named += [*table["does_not_apply"], *table["clients"]["statements"]]
    every = {f"{section}-{number}" for section, count in NUMBERS.items() for number in range(1, count + 1)} - MISSING
    assert [one for one, count in Counter(named).items() if count > 1] == []
    assert set(named) == every
    source = "".join(
        page.read_text() for folder in ("protocol/mqtt", "proxy/mqtt") for page in (TESTS / folder).glob("test_*.py")
    )
    tests = set(re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE))
    assert set(held) - tests == set()
