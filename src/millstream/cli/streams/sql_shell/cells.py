"""Values of results as text."""

from __future__ import annotations

import datetime

__all__ = ["cell_text"]


def cell_text(value: object, zone: datetime.tzinfo = datetime.UTC) -> str:
    """One value: NULL for none, instants in `zone`, (ROW), [ARRAY], {MAP}.

    Times have milliseconds, or microseconds where there are any.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case datetime.datetime():
            local = value.astimezone(zone) if value.tzinfo is not None else value
            return local.isoformat(sep=" ", timespec="microseconds" if local.microsecond % 1000 else "milliseconds")
        case bytes() | bytearray():
            return f"x'{value.hex()}'"
        case dict():  # a ROW
            return f"({', '.join(cell_text(item, zone) for item in value.values())})"
        case list():
            texts = [cell_text(item, zone) for item in value]
            # A MAP comes as pairs; an ARRAY<ROW> as dicts.
            return f"{{{', '.join(texts)}}}" if value and isinstance(value[0], tuple) else f"[{', '.join(texts)}]"
        case tuple():
            return "=".join(cell_text(item, zone) for item in value)
        case _:
            return str(value)
