"""Partition columns in the names of directories, as in `dt=2026-01-02/hm=10%3A00`.

Source of the form: Apache Hive's partitions, whose special characters Flink's connector writes in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

__all__ = ["DEFAULT_NAME", "named_values", "partition_name"]

DEFAULT_NAME: Final = "__DEFAULT_PARTITION__"
"""What stands in the place of NULL and of an empty text where `partition.default-name` says nothing."""

_ESCAPED = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^"))}


def partition_name(column: str, value: str | None, default_name: str = DEFAULT_NAME) -> str:
    """The name of the directory of rows with that value; None is NULL."""
    return f"{column.translate(_ESCAPED)}={(value or default_name).translate(_ESCAPED)}"


def named_values(directories: Iterable[str], default_name: str = DEFAULT_NAME) -> dict[str, str | None]:
    """The values by column that directories name; other directories say nothing."""
    parts = (name.partition("=") for name in directories if "=" in name)
    texts = {unquote(column): unquote(text) for column, _, text in parts}
    return {column: None if text == default_name else text for column, text in texts.items()}
