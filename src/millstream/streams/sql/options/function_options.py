"""The options of CREATE FUNCTION: what the statement says of a Python function beside its own declaration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from millstream.streams.functions.user_functions.user import UserFunction
from millstream.streams.sql.syntax.script import Script
from millstream.streams.sql.syntax.suggestions import did_you_mean
from millstream.streams.sql.syntax.tables import OptionDefinition

__all__ = ["OPTIONS", "with_options"]

OPTIONS: Final = ("deterministic",)
"""The options of CREATE FUNCTION."""

_DECORATED: Final = ("arguments", "result", "vectorised", "capacity", "timeout", "retries", "retry-wait")
"""What a decorator says, since a worker reads it of the function itself."""

_FLAGS = {"true": True, "false": False}


def with_options(function: UserFunction, options: Sequence[OptionDefinition], script: Script) -> UserFunction:
    """The function as the options have it. Raises SqlError SQL_OPTION at the option."""
    for option in options:
        name = option.key.lower()
        if name not in OPTIONS:
            message = f"A function has no option '{option.key}'."
            remedy = did_you_mean(name, OPTIONS) or f"The option is {', '.join(OPTIONS)}."
            if name.replace("_", "-").removesuffix("-s") in _DECORATED:
                remedy = "Say it where the function is: @udf(...) of millstream.streams.udf."
            raise script.error("SQL_OPTION", message, option.span, remedy=remedy)
        flag = _FLAGS.get(option.value.lower())
        if flag is None:
            message = f"'{option.key}' is 'true' or 'false', not '{option.value}'."
            raise script.error("SQL_OPTION", message, option.span)
        function = replace(function, deterministic=flag)
    return function
