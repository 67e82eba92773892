"""`millstream model send`: a model as a message, for jobs that take it from a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.model.message import MAX_BODY_BYTES, Message
from millstream.streams.errors import ModelError
from millstream.streams.learning.store import checked_name

__all__ = ["send"]


def send(
    name: str,
    file: Path,
    *,
    topic: Annotated[str, Parameter(name="--topic")],
    common: CommonOptions = CommonOptions(),
) -> int:
    """Send an ONNX model to a topic as its next version, which jobs take from there at their next micro-batch.

    It is loaded once before: one that cannot be is refused. Make the topic with --compacted, so that it keeps the last
    version of each model. Example: millstream model send fraud fraud.onnx --topic models.

    Parameters
    ----------
    name
        The model's name, which is the message's key.
    file
        Its artefact, of 4 MiB at most.
    topic
        The topic that CREATE MODEL names.
    """
    from millstream.streams.learning.artefacts import load_artefact
    from millstream.streams.learning.trust import read_artefact

    artefact = read_artefact(file, "onnx")
    if len(artefact) > MAX_BODY_BYTES:
        words = f"The model {file} has {len(artefact):,} bytes, and a message {MAX_BODY_BYTES:,} at most."
        raise ModelError("MODEL_REFUSED", words, remedy="Use a store: millstream model publish.")
    load_artefact("onnx", artefact, str(file))
    with cluster(common) as client:
        sent = client.send(Message(topic, artefact, keys=(checked_name(name),)))
    Printer(common.output).record(
        {"model": name, "topic": topic, "queue": sent.queue.queue_id, "offset": sent.queue_offset},
        sentence=f"the model {name} of the topic {topic} is the one at offset {sent.queue_offset} from now on",
    )
    return ExitCode.DONE
