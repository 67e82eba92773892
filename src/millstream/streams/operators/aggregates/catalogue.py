"""Maps aggregate calls to accumulators."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from millstream.streams.errors import JobError
from millstream.streams.functions.user_functions.user import UserFunctionProblem, user_aggregate
from millstream.streams.functions.user_functions.user_aggregates import RetractableUserAggregate, UserAggregate
from millstream.streams.operators.aggregates.accumulator import (
    Accumulator,
    Average,
    ExactSum,
    Extreme,
    Retractable,
    RetractableExtreme,
    Sum,
    ValueCount,
    WholeAverage,
)
from millstream.streams.operators.aggregates.collected import (
    BinCounts,
    Bits,
    Chosen,
    Collected,
    DistinctEstimate,
    KeptValues,
    OneChosen,
    OneValue,
    Variance,
    json_array,
)
from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["AGGREGATES", "AggregateSpec", "UserAggregateSpec", "accumulator_of", "retractable_of"]


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One aggregate call over places of a row.

    `arguments` are the places of its values, none for COUNT(*); `literals` the constants behind them. `filter` is the
    place of a condition. `argument_type` is that of the first value, `type` the result's. `user` is what a user's
    aggregate is beside that; it takes rows with NULLs too.
    """

    function: str
    arguments: tuple[int, ...]
    argument_type: DataType | None
    type: DataType
    filter: int | None = None
    distinct: bool = False
    literals: tuple[Any, ...] = ()
    user: UserAggregateSpec | None = None

    @property
    def takes_nulls(self) -> bool:
        """Whether a NULL is a value as any other: in ARRAY_AGG, and where JSON_ARRAYAGG says NULL ON NULL."""
        return self.function == "ARRAY_AGG" or (self.function == "JSON_ARRAYAGG" and self.literals == ("NULL",))

    @property
    def leaves_null_values(self) -> bool:
        """Whether pairs whose value is NULL are left out: where JSON_OBJECTAGG says ABSENT ON NULL."""
        return self.function == "JSON_OBJECTAGG" and self.literals == ("ABSENT",)


@dataclass(frozen=True, slots=True)
class UserAggregateSpec:
    """The class of a user's aggregate by its path, where its module lies, and the types of all its arguments."""

    path: str
    root: str
    arguments: tuple[DataType, ...]


_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64}
_FLOATS = (TypeKind.FLOAT, TypeKind.DOUBLE)


def accumulator_of(spec: AggregateSpec, *, changing: bool) -> Accumulator:
    """The accumulator; `changing` where rows may be taken back. Raises JobError for a function without one."""
    if spec.user is not None:
        return _users(spec.user, spec.type)
    make = AGGREGATES.get(spec.function)
    if make is None:
        raise JobError("JOB_FAILED", f"The aggregate {spec.function} has no operator.")
    return make(spec, changing)


def retractable_of(spec: AggregateSpec) -> Retractable:
    """The accumulator for rows that may be taken back."""
    machine = accumulator_of(spec, changing=True)
    if not isinstance(machine, Retractable):
        raise JobError(
            "JOB_FAILED", f"{spec.function} cannot take rows back.", remedy="Give its class a method retract."
        )
    return machine


def _users(user: UserAggregateSpec, result: DataType) -> Accumulator:
    try:
        methods = user_aggregate(user.path, user.root)
    except UserFunctionProblem as problem:
        raise JobError("JOB_FAILED", problem.message, remedy=problem.remedy) from None
    kind = UserAggregate if methods.retract is None else RetractableUserAggregate
    return kind(user.path, methods, user.arguments, result)


def _sum(spec: AggregateSpec, _changing: bool) -> Accumulator:
    if spec.type.kind in _FLOATS:
        return ExactSum()
    return Sum(_BITS.get(spec.type.kind), 0 if spec.function in ("SUM0", "$SUM0") else None)


def _average(spec: AggregateSpec, _changing: bool) -> Accumulator:
    given = spec.argument_type
    if given is not None and given.is_integer and spec.type.is_integer:
        return WholeAverage()
    if spec.type.kind is TypeKind.DECIMAL:
        return WholeAverage(spec.type.scale or 0)
    return Average()


def _variance(spec: AggregateSpec, _changing: bool, *, sample: bool, root: bool) -> Accumulator:
    scale = spec.type.scale if spec.type.kind is TypeKind.DECIMAL else None
    return Variance(sample=sample, root=root, scale=scale, bits=_BITS.get(spec.type.kind))


def _extreme(largest: bool) -> Callable[[AggregateSpec, bool], Accumulator]:
    return lambda _spec, changing: RetractableExtreme(largest=largest) if changing else Extreme(largest=largest)


def _make_choice(largest: bool) -> Callable[[AggregateSpec, bool], Accumulator]:
    return lambda _spec, changing: Chosen(largest=largest) if changing else OneChosen(largest=largest)


def _make_text_list(spec: AggregateSpec, _changing: bool) -> Accumulator:
    separator = str(spec.literals[0]) if spec.literals else ","
    return KeptValues(partial(_join_texts, separator))


def _join_texts(separator: str, values: Sequence[Any]) -> str:
    return separator.join(map(str, values))


def _first(values: Sequence[Any]) -> Any:
    return values[0]


def _last(values: Sequence[Any]) -> Any:
    return values[-1]


def _percentile(spec: AggregateSpec, _changing: bool) -> Accumulator:
    wanted: Any = spec.literals[0] if spec.literals else 0.5
    if isinstance(wanted, list | tuple):
        return KeptValues(partial(_percentiles, [float(one) for one in wanted], True))
    return KeptValues(partial(_percentiles, [float(wanted)], False))


def _percentiles(wanted: Sequence[float], several: bool, values: Sequence[Any]) -> Any:
    """Linear interpolation between the closest values, as Flink's PERCENTILE does. Pairs are values and how often."""
    often: Counter[float] = Counter()
    for value in values:
        number, count = value if isinstance(value, tuple) else (value, 1)
        if number is not None and count is not None and count > 0:
            often[float(number)] += int(count)
    if not often:
        return None
    ordered = sorted(often)
    ends = list(accumulate(often[number] for number in ordered))
    found = []
    for one in wanted:
        # Places count from 1, and the parts are weighed one by one: the last digits are Flink's, too.
        place = one * (ends[-1] - 1) + 1
        before, after = math.floor(place), math.ceil(place)
        low, high = ordered[bisect_left(ends, before)], ordered[bisect_left(ends, after)]
        found.append(low if before == after else (after - place) * low + (place - before) * high)
    return found if several else found[0]


def _histogram(spec: AggregateSpec, _changing: bool) -> Accumulator:
    low, high, bins = spec.literals
    return BinCounts(float(low), float(high), int(bins))


def _object(pairs: Sequence[tuple[Any, Any]]) -> str:
    text = ",".join(f"{json_array([str(key)])[1:-1]}:{json_array([value])[1:-1]}" for key, value in pairs)
    return f"{{{text}}}"


AGGREGATES: dict[str, Callable[[AggregateSpec, bool], Accumulator]] = {
    "COUNT": lambda _spec, _changing: ValueCount(),
    "SUM": _sum,
    "SUM0": _sum,
    "AVG": _average,
    "MIN": _extreme(False),
    "MAX": _extreme(True),
    "STDDEV_POP": partial(_variance, sample=False, root=True),
    "STDDEV_SAMP": partial(_variance, sample=True, root=True),
    "STDDEV": partial(_variance, sample=True, root=True),
    "VAR_POP": partial(_variance, sample=False, root=False),
    "VAR_SAMP": partial(_variance, sample=True, root=False),
    "VARIANCE": partial(_variance, sample=True, root=False),
    "COLLECT": lambda _spec, _changing: Collected(),
    "ARRAY_AGG": lambda _spec, _changing: KeptValues(list),
    "LISTAGG": _make_text_list,
    "FIRST_VALUE": lambda _spec, changing: KeptValues(_first) if changing else OneValue(last=False),
    "LAST_VALUE": lambda _spec, changing: KeptValues(_last) if changing else OneValue(last=True),
    "MIN_BY": _make_choice(False),
    "MAX_BY": _make_choice(True),
    "BIT_AND": lambda spec, _changing: Bits(spec.function),
    "BIT_OR": lambda spec, _changing: Bits(spec.function),
    "BIT_XOR": lambda spec, _changing: Bits(spec.function),
    "APPROX_COUNT_DISTINCT": lambda _spec, _changing: DistinctEstimate(),
    "PERCENTILE": _percentile,
    "HISTOGRAM": _histogram,
    "JSON_ARRAYAGG": lambda _spec, _changing: KeptValues(json_array, also_none=True),
    "JSON_OBJECTAGG": lambda _spec, _changing: KeptValues(_object, also_none=True),
}
"""What makes the accumulator of each aggregate."""
