"""The grammar of expressions and queries, as used by cursors."""

from __future__ import annotations

from typing import Final

from millstream.streams.sql.parser.cursor import Cursor, Grammar
from millstream.streams.sql.parser.lexer import tokenize
from millstream.streams.sql.parser.query_parser import parse_select
from millstream.streams.sql.parser.term_parser import parse_arguments, parse_sum, parse_term
from millstream.streams.sql.syntax.script import Script, Variables

__all__ = ["cursor_of"]

_GRAMMAR: Final = Grammar(parse_term, parse_sum, parse_arguments, parse_select)


def cursor_of(script: Script, variables: Variables | None = None) -> Cursor:
    """A cursor before the first token of the script. Raises SqlError for what is no token."""
    return Cursor(script, tokenize(script, variables), _GRAMMAR)
