"""The connectors `print`, which shows rows, and `blackhole`, which discards them."""

from __future__ import annotations

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import text

__all__ = ["BLACKHOLE", "PRINT"]

PRINT = Connector(
    "print",
    (text("print-identifier", "Name shown before each row; default: the table's."),),
    writes=True,
    job_sink="millstream.streams.connectors.print.sink:print_sink",
    merges=True,
    shows_changes=True,
    shows_rows=True,
)

BLACKHOLE = Connector(
    "blackhole",
    (),
    writes=True,
    job_sink="millstream.streams.connectors.print.sink:blackhole_sink",
    merges=True,
    shows_changes=True,
)
