"""The conditions of our YAML form: maps of fields and what they must be, joined by `all`, `any` and `not`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final

import yaml

from millstream.streams.errors import SourcePosition, SqlError
from millstream.streams.rule_formats.condition_text import condition_of_text
from millstream.streams.rule_formats.yaml_document import Entries, is_null, items, refuse, scalar, text, truth, unknown
from millstream.streams.rules.atoms import Atom, Op, Operand, Step
from millstream.streams.rules.formulas import Formula, all_of, any_of, negated

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


def condition_of(node: yaml.Node, *, caseless: bool) -> Formula:
    """The formula of a `when`. A field that is not there is not equal to anything: false, and `not` of it true.

    A text is a condition of SQL, in which such a field is unknown.
    """
    if isinstance(node, yaml.ScalarNode) and not is_null(node):
        return _of_text(node, caseless)
    return all_of(*_entries(node, caseless))


def _of_text(node: yaml.ScalarNode, caseless: bool) -> Formula:
    try:
        return condition_of_text(text(node, "a condition"), caseless=caseless)
    except SqlError as error:
        place = error.position or SourcePosition(1, 1)
        near = node.value.splitlines()[place.line - 1][place.column - 1 :][:_NEAR_CHARACTERS]
        refuse(node, f"In the condition{f' at {near!r}' if near else ''}: {error.message}")


def _entries(node: yaml.Node, caseless: bool) -> list[Formula]:
    entries = Entries(node, _ENTRY)
    if not entries.left:
        refuse(node, f"Expected {_ENTRY}, found an empty map.")
    return [_entry(key, value, caseless) for key, value in entries.left.values()]


def _entry(key: yaml.Node, value: yaml.Node, caseless: bool) -> Formula:
    # A quoted word is a field of that name.
    word = key.value if isinstance(key, yaml.ScalarNode) and not key.style else None
    if word == "not":
        return negated(condition_of(value, caseless=caseless))
    if word in ("all", "any"):
        parts = _parts(value, caseless, word)
        return all_of(*parts) if word == "all" else any_of(*parts)
    return _field(text(key, "the name of a field"), value, caseless)


def _parts(node: yaml.Node, caseless: bool, word: str) -> list[Formula]:
    if isinstance(node, yaml.MappingNode):
        return _entries(node, caseless)
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        refuse(node, f"Expected a list or map of conditions behind {word!r}.")
    return [condition_of(one, caseless=caseless) for one in node.value]


def _field(name: str, value: yaml.Node, caseless: bool) -> Formula:
    if not isinstance(value, yaml.MappingNode):
        return _equal(_Field(name, caseless), value)
    entries = Entries(value, "what the field must be")
    said = entries.take("caseless")
    steps = entries.take("steps")
    field = _Field(
        name,
        caseless if said is None else truth(said, "caseless"),
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
    def __init__(self, name: str, caseless: bool, steps: tuple[Step, ...] = ()) -> None:
        self.name = name
        self.caseless = caseless
        self.steps = steps

    def texts(self, op: Op, *operands: str) -> Atom:
        return Atom(self.name, op, operands, self.caseless, False, self.steps)

    def values(self, op: Op, *operands: Operand) -> Atom:
        """Letters are not looked at where numbers are compared."""
        if isinstance(operands[0], str):
            return Atom(self.name, op, operands, self.caseless, False, self.steps)
        return Atom(self.name, op, operands, absent=False)


def _step(node: yaml.Node) -> Step:
    word = text(node, "a step")
    if word not in list(Step):
        refuse(node, unknown(word, [one.value for one in Step]))
    return Step(word)


def _operands(node: yaml.Node) -> list[yaml.Node]:
    found = items(node)
    if not 0 < len(found) <= MAX_OPERANDS:
        refuse(node, f"Expected 1 to {MAX_OPERANDS:,} values, found {len(found):,}.")
    return found


def _equal(field: _Field, node: yaml.Node) -> Formula:
    nulls, by_type = False, dict[str, list[Operand]]()
    for one in _operands(node):
        if is_null(one):
            nulls = True
            continue
        value = scalar(one, "a value or a list of values")
        kind = "text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number"
        by_type.setdefault(kind, []).append(value)
    parts: list[Formula] = [field.values(Op.IN, *dict.fromkeys(values)) for values in by_type.values()]
    return any_of(*parts, *([Atom(field.name, Op.IS_NULL, whole_lists=True)] if nulls else []))


def _searched(op: Op, joined: Callable[..., Formula]) -> Callable[[_Field, yaml.Node], Formula]:
    def build(field: _Field, node: yaml.Node) -> Formula:
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


def _compared(op: Op) -> Callable[[_Field, yaml.Node], Formula]:
    def build(field: _Field, node: yaml.Node) -> Formula:
        value = scalar(node, "a number or a text")
        if isinstance(value, bool):
            refuse(node, "Expected a number or a text, found a truth value.")
        return field.values(op, value)

    return build


def _network(field: _Field, node: yaml.Node) -> Formula:
    networks = []
    for one in _operands(node):
        try:
            networks.append(str(ipaddress.ip_network(text(one, "a network such as 10.0.0.0/8"), strict=False)))
        except ValueError as error:
            refuse(one, f"Expected a network such as 10.0.0.0/8: {error}.")
    return Atom(field.name, Op.CIDR, tuple(dict.fromkeys(networks)), absent=False)


def _same(field: _Field, node: yaml.Node) -> Formula:
    return any_of(*(field.texts(Op.EQUALS_FIELD, text(one, "the name of a field")) for one in _operands(node)))


def _exists(field: _Field, node: yaml.Node) -> Formula:
    absent = Atom(field.name, Op.IS_NULL, whole_lists=True)
    return negated(absent) if truth(node, "exists") else absent


def _call(field: _Field, node: yaml.Node) -> Formula:
    first, *arguments = _operands(node)
    if not _CALL.fullmatch(text(first, "a function")):
        refuse(first, "Expected a function as module:name, and what else it is given behind it in a list.")
    operands = (first.value, *(scalar(one, "a value") for one in arguments))
    return Atom(field.name, Op.CALL, operands, absent=False, whole_lists=True)


_BUILDERS: Final[dict[str, Callable[[_Field, yaml.Node], Formula]]] = {
    "is": _equal,
    **{word: _searched(op, any_of) for word, op in _TEXTS.items()},
    "contains all": _searched(Op.CONTAINS, all_of),
    "network": _network,
    **{word: _compared(op) for word, op in _COMPARISONS.items()},
    "same as": _same,
    "exists": _exists,
    "call": _call,
}
