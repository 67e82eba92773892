"""`millstream model`: bring models into a store, see their versions, go back to older ones, take them out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from millstream.cli.messages.moment import time_text
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value
from millstream.streams.errors import ModelError
from millstream.streams.learning.store import FORMATS, ModelStore, format_of

__all__ = ["list_models", "publish", "remove", "rollback"]

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
    from millstream.streams.learning.artefacts import load_artefact
    from millstream.streams.learning.trust import read_artefact

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
