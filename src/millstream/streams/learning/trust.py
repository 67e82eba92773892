"""Which files artefacts may be read from. One of scikit-learn is a pickle: loading it runs whatever code it holds."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.streams.errors import ModelError

__all__ = ["PATHS_VARIABLE", "check_trusted", "check_trusted_topic", "read_artefact"]

PATHS_VARIABLE: Final = "MILLSTREAM_MODEL_PATHS"
"""Names the directories (parted by a colon) from which alone models are taken; blank or not set: from all."""

_RUNS_CODE: Final = ("sklearn",)


def check_trusted(path: Path, format: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises ModelError MODEL_NOT_TRUSTED for a file or store outside of the directories that are allowed.

    A file whose loading runs code is refused as well where every user of the machine may change it. OSError where it
    is not there.
    """
    allowed = [Path(one).resolve() for one in environment.get(PATHS_VARIABLE, "").split(os.pathsep) if one]
    found = path.resolve()
    if allowed and not any(found.is_relative_to(one) for one in allowed):
        words = f"{path} is in none of the directories that {PATHS_VARIABLE} names: {', '.join(map(str, allowed))}."
        raise ModelError("MODEL_NOT_TRUSTED", words)
    if format in _RUNS_CODE and path.stat().st_mode & stat.S_IWOTH:
        words = f"Loading {path} runs code that it holds, and every user of this machine may change it."
        raise ModelError("MODEL_NOT_TRUSTED", words, remedy=f"Take that away: chmod o-w {path}.")


def check_trusted_topic(topic: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises ModelError MODEL_NOT_TRUSTED where models are taken from certain directories alone."""
    if environment.get(PATHS_VARIABLE):
        words = f"The topic {topic} is none of the directories that {PATHS_VARIABLE} names."
        raise ModelError("MODEL_NOT_TRUSTED", words, remedy="Use a store in one of them.")


def read_artefact(path: Path, format: str) -> bytes:
    """The content of a file that may be read. Raises MODEL_NOT_FOUND, MODEL_NOT_TRUSTED."""
    try:
        check_trusted(path, format)
        return path.read_bytes()
    except OSError as error:
        words = f"The model {path} cannot be read: {error.strerror}."
        raise ModelError("MODEL_NOT_FOUND", words, remedy="Name a file that is there and may be read.") from None
