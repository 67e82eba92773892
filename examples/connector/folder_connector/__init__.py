"""A connector of one's own: a folder whose files of JSON lines only grow.

    pip install ./examples/connector
    CREATE TABLE notes (id BIGINT, word STRING) WITH ('connector' = 'folder', 'path' = '/data/notes');

This module declares it and imports nothing heavy; the code is in `lines`.
"""

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import count, text

__all__ = ["FOLDER"]

FOLDER = Connector(
    "folder",
    (
        text("path", "Directory of the files.", required=True, wanted="a path"),
        count("lines-per-task", "Lines that one task reads at most.", "a number of lines", default="10000"),
    ),
    reads=True,
    writes=True,
    source="folder_connector.lines:FolderSource",
    sink="folder_connector.lines:FolderSink",
)
