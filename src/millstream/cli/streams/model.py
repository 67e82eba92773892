"""`millstream model`: add, list, roll back and remove models of a store, or send one as a message."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from millstream.cli.messages.moment import time_text
from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value
from millstream.model.message import MAX_BODY_BYTES, Message
from millstream.streams.errors import ModelError
from millstream.streams.learning.store import FORMATS, ModelStore, checked_name, format_of

__all__ = ["list_models", "publish", "remove", "rollback", "send"]


STORE_VARIABLE = "MILLSTREAM_MODELS"

Store = Annotated[Path, Parameter(name="--store", env_var=STORE_VARIABLE)]


def publish(
    name: str,
    file: Path,
    *,
    store: Store,
    format: str | None = None,
    why: str = "",
    common: CommonOptions = CommonOptions(),
) -> int:
    """Publish a model in a store as the next version, which running jobs take at their next micro-batch.

    It is loaded once before: one that cannot be is refused. Loading a scikit-learn artefact runs code that it holds, so
    publish only what you trust. Example: millstream model publish fraud fraud.onnx --store models.

    Parameters
    ----------
    name
        The model's name in the store.
    file
        Its artefact: .onnx, or .joblib, .pkl or .pickle of scikit-learn.
    store
        The directory of the models; it is created if it is missing. MILLSTREAM_MODELS names it, too.
    format
        onnx or sklearn, if the file's name does not say it.
    why
        What the version is for; millstream model list shows it.
    """
    from millstream.streams.learning.artefacts import load_artefact, read_artefact

    found = format or format_of(file)
    if found is None:
        words = f"The name {file.name} does not say the format of the model."
        raise ModelError("MODEL_REFUSED", words, remedy=f"Add --format: {', '.join(FORMATS)}.")
    artefact = read_artefact(file, found)
    load_artefact(found, artefact, str(file))
    head = ModelStore(store).publish(name, artefact, found, why=why)
    Printer(common.output).record(
        {"model": name, "version": head.version, "format": head.format, "size_bytes": head.size_bytes},
        sentence=f"version {head.version} of the model {name} counts from now on",
    )
    return ExitCode.DONE


def list_models(name: str | None = None, *, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """List the models of a store with their versions, oldest first; the current one is marked.

    Parameters
    ----------
    name
        One model; default: all.
    store
        The directory of the models.
    """
    models = ModelStore(store)
    rows: list[tuple[Value, ...]] = []
    for model in [name] if name is not None else models.names():
        current = models.current(model)
        for head in models.versions(model):
            if isinstance(head, ModelError):
                rows.append((model, None, False, None, None, None, str(head)))
                continue
            stored = time_text(head.time_ms)
            rows.append((model, head.version, head.version == current, head.format, head.size_bytes, stored, head.why))
    columns = ("model", "version", "counts", "format", "size_bytes", "stored", "why")
    Printer(common.output).listing(columns, rows, empty="The store has no models.")
    return ExitCode.DONE


def rollback(name: str, version: int, *, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Make an older version of a model current again, as a new version.

    Parameters
    ----------
    name
        The model.
    version
        Its number: millstream model list.
    store
        The directory of the models.
    """
    head = ModelStore(store).rollback(name, version)
    Printer(common.output).record(
        {"model": name, "version": head.version, "as": version},
        sentence=f"version {head.version} of the model {name} is version {version} again",
    )
    return ExitCode.DONE


def remove(name: str, version: int | None = None, *, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Remove a version of a model from a store, or the whole model. Running jobs keep what they use.

    Parameters
    ----------
    name
        The model.
    version
        The version; not the current one. Default: the model with all versions.
    store
        The directory of the models.
    """
    gone = ModelStore(store).remove(name, version)
    Printer(common.output).record(
        {"model": name, "removed": gone},
        sentence=f"the model {name} is removed" if version is None else f"version {version} of {name} is removed",
    )
    return ExitCode.DONE


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
    from millstream.streams.learning.artefacts import load_artefact, read_artefact

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
