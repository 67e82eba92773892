"""A model as SQL sees it: its artefact, and its input and output columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from millstream.streams.plan.types import DataType, Field, TypeKind

__all__ = ["MODEL_PREFIX", "Model", "ModelReference"]

MODEL_PREFIX: Final = "model:"
"""Begins the name of a call of a model in a plan; its reference follows."""


class ModelReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the artefact of the model `name` is: a `file` of that `format`, or the model `stored` of a `store`.

    Or it is the last message with the key `stored` of a `topic` (of the job's cluster, unless it has a `nameserver`).
    `inputs` are the names of the columns that it takes.
    """

    name: str
    inputs: tuple[str, ...]
    file: str = ""
    format: str = ""
    store: str = ""
    stored: str = ""
    topic: str = ""
    nameserver: str = ""

    @property
    def call_name(self) -> str:
        """The function's name in a plan."""
        return MODEL_PREFIX + msgspec.json.encode(self).decode()

    @classmethod
    def of_call(cls, function: str) -> ModelReference:
        """What `call_name` was made of."""
        return msgspec.json.decode(function.removeprefix(MODEL_PREFIX), type=cls)


@dataclass(frozen=True, slots=True)
class Model:
    """What CREATE MODEL declares."""

    reference: ModelReference
    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]

    @property
    def result(self) -> DataType:
        """The type of a call: a ROW of the outputs."""
        return DataType(TypeKind.ROW, fields=self.outputs)
