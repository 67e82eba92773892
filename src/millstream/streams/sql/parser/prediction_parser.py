"""ML_PREDICT in FROM as Flink has it."""

from __future__ import annotations

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.window_parser import parse_rows
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.names import name_list, parse_path
from millstream.streams.sql.syntax.queries import PredictionSource, SubquerySource, TableSource
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.tables import Path

__all__ = ["parse_prediction"]

_ORDER = ("INPUT", "MODEL", "ARGS", "CONFIG")
_EXAMPLE = "Write ML_PREDICT(TABLE t, MODEL m, DESCRIPTOR(a, b))."


def parse_prediction(cursor: Cursor, start: Span) -> PredictionSource:
    """ML_PREDICT(TABLE t, MODEL m, DESCRIPTOR(a, b)), by place or by name; its name comes next."""
    cursor.advance()
    cursor.need_symbol("(")
    table: TableSource | SubquerySource | None = None
    model: Path | None = None
    features: tuple[NameTerm, ...] = ()
    for place in range(len(_ORDER)):
        match _argument_name(cursor) or _ORDER[place]:
            case "INPUT" if table is None:
                table = parse_rows(cursor)
            case "MODEL" if model is None:
                cursor.need("MODEL")
                model = parse_path(cursor, "a model's name")
            case "ARGS" if not features:
                cursor.need("DESCRIPTOR")
                features = name_list(cursor)
            case "CONFIG":
                message = "CONFIG of ML_PREDICT is not supported: models here are asked for many rows at once."
                raise cursor.unsupported(message, remedy="Leave it out.")
            case _:
                raise cursor.script.error("SQL_SYNTAX", "ML_PREDICT takes each argument once.", cursor.here())
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    span = cursor.since(start)
    if table is None or model is None or not features:
        message = "ML_PREDICT needs a table, a model and the columns that it takes."
        raise cursor.script.error("SQL_SYNTAX", message, span, remedy=_EXAMPLE)
    return PredictionSource(table, model.parts, model.span, features, span)


def _argument_name(cursor: Cursor) -> str | None:
    token, arrow = cursor.peek(), cursor.peek(1)
    if token is None or arrow is None or not arrow.is_symbol("=>"):
        return None
    cursor.advance()
    cursor.advance()
    if token.text.upper() not in _ORDER:
        message = f"ML_PREDICT has no argument {token.text}."
        raise cursor.script.error("SQL_SYNTAX", message, token.span, remedy=f"It has {', '.join(_ORDER[:3])}.")
    return token.text.upper()
