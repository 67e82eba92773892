"""The sum of each device's readings in windows of 10 seconds, for readings that come up to 5 seconds late.

Run it:  millstream quickstart        (in another terminal)
         python examples/datastream/window_sum.py
"""

from __future__ import annotations

from samples import NAMESERVER, send

from millstream.streams.sdk import StreamBuilder, tumbling

READINGS = [
    {"device": "a", "value": 1, "ts": "2026-05-01 12:00:01"},
    {"device": "b", "value": 10, "ts": "2026-05-01 12:00:03"},
    {"device": "a", "value": 2, "ts": "2026-05-01 12:00:12"},
    # Out of order, and in time: the newest reading so far is of second 12, so the window up to 10 is still open.
    {"device": "a", "value": 4, "ts": "2026-05-01 12:00:08"},
    {"device": "b", "value": 20, "ts": "2026-05-01 12:00:31"},
]


def main() -> StreamBuilder:
    """The job, with readings to try it on."""
    send("readings", READINGS)
    builder = StreamBuilder("window-sum", nameserver=NAMESERVER)
    readings = builder.source(
        "readings",
        schema={"device": str, "value": int, "ts": "TIMESTAMP(3)"},
        timestamp="ts",
        watermark="5 s",
    )
    readings.key_by("device").window(tumbling("10 s")).sum("value", name="total").print("sum")
    return builder


if __name__ == "__main__":
    main().run_bounded()
