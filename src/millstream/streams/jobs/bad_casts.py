"""What becomes of rows in which a CAST fails, as `millstream.bad-cast` says.

`null`: the value is NULL. `dead-letter`: the row goes to the dead-letter topic of the table it comes from, with the
reason among its properties, and on no other way. `fail`: the job ends. `optimizer/strict_casts.py` says where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.connectors.rocketmq.sink import SEND_TIMEOUT_S, MessageMaker, TopicSink
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.optimizer.strict_casts import (
    PROPERTIES,
    BadCastRows,
    dead_letter_topic_of,
    divert_bad_casts,
    fail_on_bad_casts,
)
from millstream.streams.spark.source.topic_log import open_log

__all__ = ["with_bad_casts"]


def with_bad_casts(outputs: Sequence[Output], settings: JobSettings) -> list[Output]:
    """The outputs with what the job asks for; one more for each place from which rows go to a dead-letter topic."""
    if settings.bad_cast == "fail":
        return [replace(output, node=fail_on_bad_casts(output.node)) for output in outputs]
    if settings.bad_cast != "dead-letter":
        return list(outputs)
    changed, letters = [], []
    for output in outputs:
        node, found = divert_bad_casts(output.node)
        changed.append(replace(output, node=node))
        letters += found
    return changed + [_output(one, settings) for one in letters]


def _output(letters: BadCastRows, settings: JobSettings) -> Output:
    """The sink of the rows; its topic is made if it is not there."""
    topic = dead_letter_topic_of(letters.table) or ""
    source = SourceSettings.of(letters.table, settings)
    log = open_log(source.nameserver, timeout_s=SEND_TIMEOUT_S, access=source.access)
    try:
        log.ensure_topic(topic)
    finally:
        log.close()
    maker = MessageMaker(topic, letters.node.schema, ((PROPERTIES, "properties"),))
    sink = TopicSink(topic, maker, source.nameserver, timeout_s=SEND_TIMEOUT_S, access=source.access)
    return Output(letters.node, sink)
