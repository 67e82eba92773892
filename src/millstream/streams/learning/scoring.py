"""Maps scoring functions of SQL to their algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.streams.learning.half_space_trees import DEFAULT_WINDOW, HalfSpaceTrees, features_of
from millstream.streams.learning.scores import DEFAULT_WARM_UP, Ewma, EwmaScore, ZScore, value_of

if TYPE_CHECKING:
    from millstream.streams.operators.aggregates.catalogue import AggregateSpec
    from millstream.streams.operators.operator import Row

__all__ = ["SCORES", "Score", "score_of"]

SCORES: Final = ("ZSCORE", "EWMA", "EWMA_SCORE", "HST")
"""Functions before OVER that learn from the rows of a partition as they come."""


class Score(Protocol):
    """One score. A state is a plain value that is never changed in place."""

    def new(self) -> Any: ...

    def next(self, state: Any, row: Row, key: Any) -> tuple[Any, Any]:
        """The state with the row behind the others, and the row's score."""
        ...


def score_of(spec: AggregateSpec) -> Score:
    """The machine of one call of `SCORES`; its constants were checked when it was bound."""
    place, literals = spec.arguments[0], spec.literals
    match spec.function:
        case "ZSCORE":
            return ZScore(value_of(place), int(literals[0]) if literals else DEFAULT_WARM_UP)
        case "EWMA":
            return Ewma(value_of(place), float(literals[0]))
        case "EWMA_SCORE":
            return EwmaScore(value_of(place), float(literals[0]), int(literals[1]) if literals[1:] else DEFAULT_WARM_UP)
        case _:
            return HalfSpaceTrees(features_of(place), int(literals[0]) if literals else DEFAULT_WINDOW)
