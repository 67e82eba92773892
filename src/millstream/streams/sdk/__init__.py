"""The DataStream SDK: jobs built in Python, alone or together with SQL; see docs/datastream.md."""

from millstream.streams.functions.user_functions.user_values import Row
from millstream.streams.sdk.builder import StreamBuilder
from millstream.streams.sdk.keyed import KeyedStream
from millstream.streams.sdk.pattern import Pattern
from millstream.streams.sdk.running import RunningJob
from millstream.streams.sdk.stream import SplitStream, Stream
from millstream.streams.sdk.windowed import WindowedStream
from millstream.streams.sdk.windows import Window, cumulating, session, sliding, tumbling

__all__ = [
    "KeyedStream",
    "Pattern",
    "Row",
    "RunningJob",
    "SplitStream",
    "Stream",
    "StreamBuilder",
    "Window",
    "WindowedStream",
    "cumulating",
    "session",
    "sliding",
    "tumbling",
]
