"""Conditions of our YAML form: field maps, joined by `all`, `any` and `not`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final

import yaml

from millstream.streams.errors import SourcePosition, SqlError
from millstream.streams.rule_formats.condition_text import condition_of_text
from millstream.streams.rule_formats.yaml_document import Entries, is_null, items, refuse, scalar, text, truth, unknown
from millstream.streams.rules.conditions import Condition, Op, Operand, Predicate, TextStep, all_of, any_of, negate

__all__ = ["TESTS", "condition_of"]

MAX_OPERANDS: Final = 10_000
"""Values that one field of a rule is compared with."""

_ENTRY = "a map of conditions, as in Image: {ends: '\\cmd.exe'}"
_NEAR_CHARACTERS = 30
_CALL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

_TEXTS: Final = {
    "starts": Op.STARTS,
    "ends": Op.ENDS,
    "contains": Op.CONTAINS,
    "matches": Op.MATCHES,
}
_COMPARISONS: Final = {
    "below": Op.LESS,
    "at most": Op.LESS_EQUAL,
    "above": Op.GREATER,
    "at least": Op.GREATER_EQUAL,
}
TESTS: Final = (
    "is", *_TEXTS, "contains all", "network", *_COMPARISONS, "same as", "exists", "call",
)  # fmt: skip
"""What may be asked of a field, beside `caseless` and `steps`."""


def condition_of(node: yaml.Node, *, caseless: bool) -> Condition:
    """The formula of a `when`. A field that is not there is not equal to anything: false, and `not` of it true.

    A text is a condition of SQL, in which such a field is unknown.
    """
    if isinstance(node, yaml.ScalarNode) and not is_null(node):
        return _of_text(node, caseless)
    return all_of(*_entries(node, caseless))


def _of_text(node: yaml.ScalarNode, caseless: bool) -> Condition:
    try:
        return condition_of_text(text(node, "a condition"), caseless=caseless)
    except SqlError as error:
        place = error.position or SourcePosition(1, 1)
        near = node.value.splitlines()[place.line - 1][place.column - 1 :][:_NEAR_CHARACTERS]
        refuse(node, f"In the condition{f' at {near!r}' if near else ''}: {error.message}")


def _entries(node: yaml.Node, caseless: bool) -> list[Condition]:
    entries = Entries(node, _ENTRY)
    if not entries.left:
        refuse(node, f"Expected {_ENTRY}, found an empty map.")
    return [_entry(key, value, caseless) for key, value in entries.left.values()]


def _entry(key: yaml.Node, value: yaml.Node, caseless: bool) -> Condition:
    # A quoted word is a field of that name.
    word = key.value if isinstance(key, yaml.ScalarNode) and not key.style else None
    if word == "not":
        return negate(condition_of(value, caseless=caseless))
    if word in ("all", "any"):
        parts = _parts(value, caseless, word)
        return all_of(*parts) if word == "all" else any_of(*parts)
    return _field(text(key, "the name of a field"), value, caseless)


def _parts(node: yaml.Node, caseless: bool, word: str) -> list[Condition]:
    if isinstance(node, yaml.MappingNode):
        return _entries(node, caseless)
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        refuse(node, f"Expected a list or map of conditions behind {word!r}.")
    return [condition_of(one, caseless=caseless) for one in node.value]


def _field(name: str, value: yaml.Node, caseless: bool) -> Condition:
    if not isinstance(value, yaml.MappingNode):
        return _equal(_Field(name, caseless), value)
    entries = Entries(value, "what the field must be")
    caseless_value = entries.take("caseless")
    steps = entries.take("steps")
    field = _Field(
        name,
        caseless if caseless_value is None else truth(caseless_value, "caseless"),
        () if steps is None else tuple(map(_step, items(steps))),
    )
    parts = []
    for word, (key, operands) in entries.left.items():
        build = _BUILDERS.get(word)
        if build is None:
            refuse(key, unknown(word, (*TESTS, "caseless", "steps")))
        parts.append(build(field, operands))
    if not parts:
        refuse(value, f"Expected what {name!r} must be: {', '.join(TESTS)}.")
    return all_of(*parts)


class _Field:
    def __init__(self, name: str, caseless: bool, steps: tuple[TextStep, ...] = ()) -> None:
        self.name = name
        self.caseless = caseless
        self.steps = steps

    def texts(self, op: Op, *operands: str) -> Predicate:
        return Predicate(self.name, op, operands, self.caseless, False, self.steps)

    def values(self, op: Op, *operands: Operand) -> Predicate:
        """Letters are not looked at where numbers are compared."""
        if isinstance(operands[0], str):
            return Predicate(self.name, op, operands, self.caseless, False, self.steps)
        return Predicate(self.name, op, operands, absent=False)


def _step(node: yaml.Node) -> TextStep:
    word = text(node, "a step")
    if word not in list(TextStep):
        refuse(node, unknown(word, [one.value for one in TextStep]))
    return TextStep(word)


def _operands(node: yaml.Node) -> list[yaml.Node]:
    found = items(node)
    if not 0 < len(found) <= MAX_OPERANDS:
        refuse(node, f"Expected 1 to {MAX_OPERANDS:,} values, found {len(found):,}.")
    return found


def _equal(field: _Field, node: yaml.Node) -> Condition:
    nulls, by_type = False, dict[str, list[Operand]]()
    for one in _operands(node):
        if is_null(one):
            nulls = True
            continue
        value = scalar(one, "a value or a list of values")
        kind = "text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number"
        by_type.setdefault(kind, []).append(value)
    parts: list[Condition] = [field.values(Op.IN, *dict.fromkeys(values)) for values in by_type.values()]
    return any_of(*parts, *([Predicate(field.name, Op.IS_NULL, whole_lists=True)] if nulls else []))


def _search_builder(op: Op, joined: Callable[..., Condition]) -> Callable[[_Field, yaml.Node], Condition]:
    def build(field: _Field, node: yaml.Node) -> Condition:
        return joined(*(field.texts(op, _text(op, one)) for one in _operands(node)))

    return build


def _text(op: Op, node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or is_null(node) or not node.value:
        refuse(node, f"Expected a text behind {op.value!r}.")
    if op is Op.MATCHES:
        try:
            re.compile(node.value)
        except (re.error, OverflowError, RecursionError) as error:
            refuse(node, f"This is no regular expression: {error}.")
    return str(node.value)


def _comparison_builder(op: Op) -> Callable[[_Field, yaml.Node], Condition]:
    def build(field: _Field, node: yaml.Node) -> Condition:
        value = scalar(node, "a number or a text")
        if isinstance(value, bool):
            refuse(node, "Expected a number or a text, found a truth value.")
        return field.values(op, value)

    return build


def _network(field: _Field, node: yaml.Node) -> Condition:
    networks = []
    for one in _operands(node):
        try:
            networks.append(str(ipaddress.ip_network(text(one, "a network such as 10.0.0.0/8"), strict=False)))
        except ValueError as error:
            refuse(one, f"Expected a network such as 10.0.0.0/8: {error}.")
    return Predicate(field.name, Op.CIDR, tuple(dict.fromkeys(networks)), absent=False)


def _same(field: _Field, node: yaml.Node) -> Condition:
    return any_of(*(field.texts(Op.EQUALS_FIELD, text(one, "the name of a field")) for one in _operands(node)))


def _exists(field: _Field, node: yaml.Node) -> Condition:
    absent = Predicate(field.name, Op.IS_NULL, whole_lists=True)
    return negate(absent) if truth(node, "exists") else absent


def _call(field: _Field, node: yaml.Node) -> Condition:
    first, *arguments = _operands(node)
    if not _CALL.fullmatch(text(first, "a function")):
        refuse(first, "Expected a function as module:name, and what else it is given behind it in a list.")
    operands = (first.value, *(scalar(one, "a value") for one in arguments))
    return Predicate(field.name, Op.CALL, operands, absent=False, whole_lists=True)


_BUILDERS: Final[dict[str, Callable[[_Field, yaml.Node], Condition]]] = {
    "is": _equal,
    **{word: _search_builder(op, any_of) for word, op in _TEXTS.items()},
    "contains all": _search_builder(Op.CONTAINS, all_of),
    "network": _network,
    **{word: _comparison_builder(op) for word, op in _COMPARISONS.items()},
    "same as": _same,
    "exists": _exists,
    "call": _call,
}
