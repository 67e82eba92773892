"""The signature of one SQL function, including its time units."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from millstream.streams.functions.casting import common_type
from millstream.streams.plan.types import BOOLEAN, DOUBLE, INT, STRING, DataType, TypeKind

__all__ = [
    "DATE",
    "PARAMETER_KINDS",
    "UNIT_ARGUMENTS",
    "ArgumentTypes",
    "FunctionSpec",
    "Origin",
    "Parameter",
    "ResultRule",
    "UnitArgument",
    "array_of",
    "map_of",
]


_STEPS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
_BOUNDS = (*_STEPS, "DECADE", "CENTURY", "MILLENNIUM")
_FIELDS = (*_BOUNDS, "MICROSECOND", "NANOSECOND", "ISOYEAR", "DOY", "DOW", "ISODOW", "EPOCH")


@dataclass(frozen=True, slots=True)
class UnitArgument:
    """Which argument is the unit (from 0), and the units it can be."""

    place: int
    units: tuple[str, ...]


UNIT_ARGUMENTS: dict[str, UnitArgument] = {
    "EXTRACT": UnitArgument(0, _FIELDS),
    "TIMESTAMPADD": UnitArgument(0, _STEPS),
    "TIMESTAMPDIFF": UnitArgument(0, _STEPS),
    "FLOOR": UnitArgument(1, _BOUNDS),
    "CEIL": UnitArgument(1, _BOUNDS),
}
"""The functions with a unit. FLOOR and CEIL have one only for times."""


DATE = DataType(TypeKind.DATE)
_BYTES = DataType(TypeKind.BYTES)
_TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)
_INTERVALS = (TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR)


def array_of(element: DataType) -> DataType:
    """ARRAY of elements that may be NULL."""
    return DataType(TypeKind.ARRAY, elements=(element.as_nullable(),))


def map_of(key: DataType, value: DataType) -> DataType:
    """MAP whose keys are never NULL."""
    return DataType(TypeKind.MAP, elements=(key.as_nullable(False), value.as_nullable()))


class Origin(Enum):
    """Where a function comes from: Flink, its forerunner Blink (whose dialect rsqldb has), or this product."""

    FLINK = "Flink"
    BLINK = "Blink and rsqldb"
    OWN = "Millstream"


@dataclass(frozen=True, slots=True)
class _Kind:
    """`holds` says whether a type fits; `wanted` is what an error calls it; a NULL is read as `null_as`."""

    shown_as: str
    holds: Callable[[DataType], bool]
    null_as: DataType | None = None


def _is(*kinds: TypeKind) -> Callable[[DataType], bool]:
    return lambda data_type: data_type.kind in kinds


PARAMETER_KINDS: dict[str, _Kind] = {
    "STRING": _Kind("a string", _is(TypeKind.STRING), STRING),
    "BYTES": _Kind("bytes", _is(TypeKind.BYTES), _BYTES),
    "TEXT_OR_BYTES": _Kind("a string or bytes", _is(TypeKind.STRING, TypeKind.BYTES), STRING),
    "BOOLEAN": _Kind("a condition", _is(TypeKind.BOOLEAN), BOOLEAN),
    "INT": _Kind("a whole number", lambda data_type: data_type.is_integer, INT),
    "NUMBER": _Kind("a number", lambda data_type: data_type.is_number, DOUBLE),
    "TIME": _Kind("a date or a timestamp", lambda t: t.is_timestamp or t.kind is TypeKind.DATE, _TIMESTAMP),
    "CLOCK": _Kind(
        "a date or a time", lambda t: t.is_timestamp or t.kind in (TypeKind.DATE, TypeKind.TIME), _TIMESTAMP
    ),
    "CLOCK_OR_INTERVAL": _Kind(
        "a date, a time or an interval",
        lambda t: t.is_timestamp or t.kind in (TypeKind.DATE, TypeKind.TIME, *_INTERVALS),
        _TIMESTAMP,
    ),
    "TIME_OR_STRING": _Kind(
        "a date, a timestamp or a string",
        lambda t: t.is_timestamp or t.kind in (TypeKind.DATE, TypeKind.STRING),
        STRING,
    ),
    "STRING_OR_INT": _Kind("a string or a whole number", lambda t: t.is_integer or t.kind is TypeKind.STRING, STRING),
    "HEXABLE": _Kind(
        "a string, bytes or a whole number",
        lambda t: t.is_integer or t.kind in (TypeKind.STRING, TypeKind.BYTES),
        STRING,
    ),
    "STRING_OR_NUMBER": _Kind("a string or a number", lambda t: t.is_number or t.kind is TypeKind.STRING, STRING),
    "ARRAY": _Kind("an array", _is(TypeKind.ARRAY), array_of(STRING)),
    "ANY_ARRAY": _Kind("an array", _is(TypeKind.ARRAY), array_of(STRING)),
    "MAP": _Kind("a map", _is(TypeKind.MAP), map_of(STRING, STRING)),
    "COLLECTION": _Kind("an array or a map", _is(TypeKind.ARRAY, TypeKind.MAP), array_of(STRING)),
    "ITEMS": _Kind(
        "an array, a map or a VARIANT", _is(TypeKind.ARRAY, TypeKind.MAP, TypeKind.VARIANT), array_of(STRING)
    ),
    "PRINTABLE": _Kind("a value that can be printed", lambda t: not t.elements and not t.fields, STRING),
    "COMPARABLE": _Kind(
        "a value that can be compared", lambda t: not t.elements and not t.fields and t.kind is not TypeKind.VARIANT
    ),
    "COMMON": _Kind("a value", lambda _type: True),
    "ELEMENT": _Kind("an element of the array", lambda _type: True),
    "ANY": _Kind("a value", lambda _type: True),
}
"""What a parameter can be. PRINTABLE is turned into a string, all COMMON into their common type, an ELEMENT and the
elements of all ARRAYs into one type, and all MAPs into one type; an ANY_ARRAY stays as it is."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; `repeated` is the last one and takes one or more values."""

    name: str
    kind: str
    optional: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class ArgumentTypes:
    """The types of the arguments, after conversion, and the values of those that are literals (else None)."""

    types: Sequence[DataType]
    literals: Sequence[object] = ()

    def literal(self, place: int) -> object:
        """The value of the literal at that place (from 0), None if there is none."""
        return self.literals[place] if place < len(self.literals) else None


ResultRule = DataType | Callable[[ArgumentTypes], DataType]
"""The type of the result, or what finds it; that raises TypeError with what is wanted."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function. `result_shown` is what `example` gives; `spelled` is its form where that is no plain call.

    `deterministic` False may differ from row to row by itself.
    """

    name: str
    signature: str
    result: ResultRule
    description: str
    example: str
    result_shown: str = ""
    origin: Origin = Origin.FLINK
    deterministic: bool = True
    spelled: str = ""
    parameters: tuple[Parameter, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", _parameters(self.signature))

    @property
    def call_name(self) -> str:
        """The function's name in a plan."""
        return self.name

    @property
    def min_args(self) -> int:
        """How many arguments there are at least."""
        return sum(not parameter.optional for parameter in self.parameters)

    @property
    def max_args(self) -> int | None:
        """How many there can be; None for any number."""
        return None if any(parameter.repeated for parameter in self.parameters) else len(self.parameters)

    @property
    def usage(self) -> str:
        """The call as the docs show it."""
        return self.spelled or f"{self.name}({_KIND_WORD.sub('', self.signature)})"

    def type_rule(self, types: Sequence[DataType], literals: Sequence[object] = ()) -> DataType:
        """The type of the result. Raises TypeError with what it wants."""
        for place, (data_type, parameter) in enumerate(zip(types, self._for_each(types), strict=True), 1):
            kind = PARAMETER_KINDS[parameter.kind]
            if data_type.kind is not TypeKind.NULL and not kind.holds(data_type):
                raise TypeError(f"{kind.shown_as} as argument {place}")
        if not callable(self.result):
            return self.result
        wanted = zip(types, self.wanted_types(types), strict=True)
        return self.result(ArgumentTypes([data_type if new is None else new for data_type, new in wanted], literals))

    def wanted_types(self, types: Sequence[DataType]) -> list[DataType | None]:
        """The types that the arguments are converted to, None for those that stay. Raises TypeError."""
        parameters = self._for_each(types)
        common = _common_of("COMMON", parameters, types)
        elements = [
            data_type.elements[0] if parameter.kind == "ARRAY" else data_type
            for data_type, parameter in zip(types, parameters, strict=True)
            if (parameter.kind == "ARRAY" and data_type.elements) or parameter.kind == "ELEMENT"
        ]
        element = common_type(elements) if len(elements) > 1 else None
        shared_map = _common_of("MAP", parameters, types)
        return [
            _wanted_type_of(parameter.kind, data_type, common, element, shared_map)
            for data_type, parameter in zip(types, parameters, strict=True)
        ]

    def _for_each(self, types: Sequence[DataType]) -> list[Parameter]:
        """The parameter of each argument; a repeated one stands for all that are left."""
        return [self.parameters[min(place, len(self.parameters) - 1)] for place in range(len(types))]


_KIND_WORD = re.compile(rf" (?:{'|'.join(PARAMETER_KINDS)})\b")
_PARAMETER = re.compile(r"(?P<open>\[)|(?P<close>\])|(?P<name>\w+)(?P<repeated>\.\.\.)? (?P<kind>\w+)|[\s,]+")


def _parameters(signature: str) -> tuple[Parameter, ...]:
    depth, found = 0, []
    for match in _PARAMETER.finditer(signature):
        depth += bool(match["open"]) - bool(match["close"])
        if match["name"]:
            found.append(Parameter(match["name"], match["kind"], depth > 0, match["repeated"] is not None))
    return tuple(found)


def _common_of(kind: str, parameters: Sequence[Parameter], types: Sequence[DataType]) -> DataType | None:
    found = [data_type for data_type, parameter in zip(types, parameters, strict=True) if parameter.kind == kind]
    return common_type(found) if len(found) > 1 else None


def _wanted_type_of(
    kind: str, data_type: DataType, common: DataType | None, element: DataType | None, shared_map: DataType | None
) -> DataType | None:
    match kind:
        case "PRINTABLE":
            return STRING
        case "COMMON":
            return common
        case "ELEMENT":
            return element
        case "ARRAY" if element is not None:
            return array_of(element)
        case "MAP" if shared_map is not None:
            return shared_map
    return PARAMETER_KINDS[kind].null_as if data_type.kind is TypeKind.NULL else None
