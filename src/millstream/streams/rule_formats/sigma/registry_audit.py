"""Registry changes in Windows audit logs: event 4657 of the channel Security.

Rules for registry changes are written for Sysmon's events. Event 4657 has the same in other fields: the key and the
name of the value apart, the key as the kernel calls it, numbers without their type. So such a rule has a second
reading for these events, a formula about their fields that holds where the rule would hold for what Sysmon writes of
the same change.

Sources: Microsoft's description of event 4657 (fields, kinds of change), message numbers %%1875, %%1876 and %%1883 of
the types; Sysmon's documentation of events 12 and 13 (names of hives).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from millstream.streams.rule_formats.sigma.values import either
from millstream.streams.rules.conditions import (
    OF_TWO_FIELDS,
    All,
    AnyOf,
    Condition,
    Not,
    Op,
    Predicate,
    Truth,
    all_of,
    any_of,
    negate,
)
from millstream.streams.rules.reference import answer

__all__ = ["audit_condition", "audit_reading", "by_reading"]

_CREATED: Final = ("%%1904", "new registry value created")
_MODIFIED: Final = ("%%1905", "existing registry value modified")
_DELETED: Final = ("%%1906", "registry value deleted")
"""Kinds of change, as Windows numbers them and as recorders spell them."""

_OPERATIONS: Final = {
    "registry_add": _CREATED,
    "registry_set": (*_CREATED, *_MODIFIED),
    "registry_delete": _DELETED,
    "registry_event": (*_CREATED, *_MODIFIED, *_DELETED),
}
"""The kinds of change that are events of each category."""

_AUDIT_EVENT: Final = 4657
_SET_EVENT: Final = 13
_DELETE_EVENT: Final = 12
"""Sysmon's events of the same changes."""

_EMPTY: Final = ("", "-")
"""What stands where there is no text."""

_TEXT_OPS: Final = frozenset((Op.IN, Op.CONTAINS, Op.STARTS, Op.ENDS))
_BORDER: Final = "\\"


class _Unreadable(Exception):
    """The question cannot be asked of event 4657 exactly."""


def _is(field: str, *texts: str) -> Predicate:
    return Predicate(field, Op.IN, tuple(sorted(texts)), caseless=True, absent=False)


_IS_AUDIT: Final = all_of(_is("Channel", "security"), Predicate("EventID", Op.IN, (_AUDIT_EVENT,), absent=False))
_IS_DELETION: Final = _is("OperationType", *_DELETED)
_IS_SET: Final = _is("OperationType", *_CREATED, *_MODIFIED)
_IS_BINARY: Final = _is("NewValueType", "%%1875", "reg_binary")


def audit_condition(category: str | None, service: str | None) -> Condition:
    """Which events 4657 are events of the log source; false where none is."""
    if category not in _OPERATIONS or service not in (None, "security"):
        return Truth(False)
    return all_of(_IS_AUDIT, _is("OperationType", *_OPERATIONS[category]))


def by_reading(formula: Condition, of_audit: Condition) -> Condition:
    """The formula for all events but 4657, and the other for those."""
    if formula == of_audit:
        return formula
    return any_of(all_of(negate(_IS_AUDIT), formula), all_of(_IS_AUDIT, of_audit))


def audit_reading(formula: Condition) -> Condition:
    """What a formula about Sysmon's fields asks of event 4657; false where that cannot be asked exactly."""
    try:
        return _read(formula)
    except _Unreadable:
        return Truth(False)


def _read(formula: Condition) -> Condition:
    match formula:
        case Predicate():
            return _read_atom(formula)
        case All(parts=parts):
            return all_of(*map(_read, parts))
        case AnyOf(parts=parts):
            return either(*map(_read, parts))
        case Not(part=part):
            return negate(_read(part))
        case _:
            return formula


def _read_atom(predicate: Predicate) -> Condition:
    if predicate.op in OF_TWO_FIELDS:
        names = (predicate.field, str(predicate.operands[0]))
        if any(name in _READINGS for name in names):
            raise _Unreadable
        field, other = (_RENAMED.get(name, name) for name in names)
        return msgspec.structs.replace(predicate, field=field, operands=(other,))
    if predicate.field in _READINGS:
        return _READINGS[predicate.field](predicate)
    return msgspec.structs.replace(predicate, field=_RENAMED.get(predicate.field, predicate.field))


def _holds_for(predicate: Predicate, value: Any) -> bool:
    """Whether the atom holds for a field with that value."""
    return predicate.op is Op.EXISTS or answer(predicate, {predicate.field: value}.get) is True


def _event_type(predicate: Predicate) -> Condition:
    return _by_operation(_holds_for(predicate, "SetValue"), _holds_for(predicate, "DeleteValue"))


def _event_id(predicate: Predicate) -> Condition:
    if _holds_for(predicate, _AUDIT_EVENT):
        return Truth(True)
    return _by_operation(_holds_for(predicate, _SET_EVENT), _holds_for(predicate, _DELETE_EVENT))


def _by_operation(when_set: bool, when_deleted: bool) -> Condition:
    if when_set and when_deleted:
        return Truth(True)
    return _IS_SET if when_set else _IS_DELETION if when_deleted else Truth(False)


def _target_object(predicate: Predicate) -> Condition:
    if predicate.op in (Op.IS_NULL, Op.EXISTS):
        return msgspec.structs.replace(predicate, field="ObjectName")
    if predicate.op not in _TEXT_OPS or (
        not predicate.caseless and any(isinstance(one, str) and one for one in predicate.operands)
    ):
        raise _Unreadable
    # A key and a value spell neither a number nor a truth value.
    return either(*(_path(predicate.op, one) for one in predicate.operands if isinstance(one, str)))


def _path(op: Op, text: str) -> Condition:
    """What is asked of key, backslash and name together: each backslash of the text may be the one between them."""
    borders = [(text[:place], text[place + 1 :]) for place, char in enumerate(text) if char == _BORDER]
    of_key = Op.ENDS if op in (Op.CONTAINS, Op.ENDS) else Op.IN
    of_name = Op.STARTS if op in (Op.CONTAINS, Op.STARTS) else Op.IN
    return either(
        *([_key(op, text)] if op in (Op.CONTAINS, Op.STARTS) else ()),
        *([_name(op, text)] if op in (Op.CONTAINS, Op.ENDS) else ()),
        *(all_of(_key(of_key, key), _name(of_name, name)) for key, name in borders),
    )


def _name(op: Op, text: str) -> Condition:
    """What is asked of the name of the value. Sysmon calls the value without a name `(Default)`."""
    if not text:
        return Truth(op is not Op.IN)
    predicate = Predicate("ObjectValueName", op, (text,), caseless=True, absent=False)
    if not _holds_for(predicate, "(Default)"):
        return predicate
    return either(predicate, _is("ObjectValueName", *_EMPTY), Predicate("ObjectValueName", Op.IS_NULL))


class _Hive(NamedTuple):
    """How Sysmon and the kernel call the root of a key: the kernel's as an expression and, if it is one text, that."""

    sysmon: str
    expression: str
    kernel: str = ""

    def is_key(self, rest: str) -> Predicate:
        """Whether the key is that root and the rest."""
        if self.kernel:
            return _is("ObjectName", f"{self.kernel}{rest}")
        return self._matches(rf"{re.escape(rest)}\Z")

    def begins_key(self, rest: str) -> Predicate:
        """Whether the key begins with that root and the rest."""
        if self.kernel:
            return Predicate("ObjectName", Op.STARTS, (f"{self.kernel}{rest}",), caseless=True, absent=False)
        return self._matches(re.escape(rest) if rest else r"(?:\\|\Z)")

    def _matches(self, rest: str) -> Predicate:
        return Predicate("ObjectName", Op.MATCHES, (rf"(?s)\A{self.expression}{rest}",), caseless=True, absent=False)


_HIVES: Final = (
    _Hive("hklm", "", r"\registry\machine"),
    _Hive("hku", "", r"\registry\user"),
    _Hive(r"hklm\system\currentcontrolset", r"\\registry\\machine\\system\\controlset[0-9]{3}"),
)
"""The kernel numbers control sets, of which Sysmon and its rules know the current one alone."""


def _key(op: Op, text: str) -> Condition:
    """What is asked of the key, as the kernel calls it or as Sysmon does."""
    if not text:
        return Truth(op is not Op.IN)
    predicate = Predicate("ObjectName", op, (text,), caseless=True, absent=False)
    return either(predicate, *(one for hive in _HIVES for one in _in_hive(hive, op, text)))


def _in_hive(hive: _Hive, op: Op, text: str) -> Iterator[Predicate]:
    """The keys below a hive that fit by their root as Sysmon calls it; others fit as they stand."""
    root = hive.sysmon
    if (op is Op.CONTAINS and text in root) or (op is Op.STARTS and root.startswith(text)):
        yield hive.begins_key("")
        return
    whole_root = op in (Op.IN, Op.STARTS)
    for place in (len(root),) if whole_root else range(1, len(text) + 1):
        head, rest = text[:place], text[place:]
        if not (head == root if whole_root else root.endswith(head)) or rest[:1] not in ("", _BORDER):
            continue
        if op in (Op.IN, Op.ENDS):
            yield hive.is_key(rest)
        elif rest:
            yield hive.begins_key(rest)


class _Number(NamedTuple):
    """How Sysmon writes a number of a type, and which type that is."""

    head: str
    digits: str
    tail: str
    type: Predicate

    @property
    def other_types(self) -> Condition:
        """Whether the value is of another type, as far as that is told."""
        return all_of(negate(self.type), negate(Predicate(self.type.field, Op.IS_NULL)))

    def condition_of(self, predicate: Predicate, text: str) -> Condition:
        """What the atom, for this operand, asks of a value of the type."""
        op, low = predicate.op, str.lower if predicate.caseless else str
        head, tail, text = low(self.head), low(self.tail), low(text)
        if (
            (op is Op.STARTS and head.startswith(text))
            or (op is Op.ENDS and tail.endswith(text))
            or (op is Op.CONTAINS and (text in head or text in tail))
        ):
            return self.type
        found = re.fullmatch(rf"(.*?)({self.digits})(.*)", text, re.DOTALL)
        if found is None or not (head.endswith(found[1]) and tail.startswith(found[3])):
            return Truth(False)
        if (op in (Op.IN, Op.STARTS) and found[1] != head) or (op in (Op.IN, Op.ENDS) and found[3] != tail):
            return Truth(False)
        spelled = re.sub("-0x", "", found[2])
        number = int(spelled, 16)
        value = _is("NewValue", *{str(number), hex(number), f"0x{spelled}"})
        return all_of(value, negate(self.other_types))


_NUMBERS: Final = (
    _Number("DWORD (0x", "[0-9a-f]{8}", ")", _is("NewValueType", "%%1876", "reg_dword")),
    _Number("QWORD (0x", "[0-9a-f]{8}-0x[0-9a-f]{8}", ")", _is("NewValueType", "%%1883", "reg_qword")),
)
_IS_TEXT: Final = negate(
    _is("NewValueType", *(str(one) for kind in (_IS_BINARY, *(n.type for n in _NUMBERS)) for one in kind.operands))
)


def _details(predicate: Predicate) -> Condition:
    if predicate.op is Op.IS_NULL:
        return _IS_DELETION
    if predicate.op is Op.EXISTS:
        return negate(_IS_DELETION)
    if predicate.op in (Op.MATCHES, Op.CALL):
        raise _Unreadable
    parts: list[Condition] = [all_of(msgspec.structs.replace(predicate, field="NewValue"), _IS_TEXT)]
    if _holds_for(predicate, "(Empty)"):
        is_empty = any_of(_is("NewValue", *_EMPTY), Predicate("NewValue", Op.IS_NULL))
        parts.append(all_of(is_empty, _IS_TEXT, negate(_IS_DELETION)))
    if _holds_for(predicate, "Binary Data"):
        parts.append(_IS_BINARY)
    if predicate.op in _TEXT_OPS:
        texts = [one for one in predicate.operands if isinstance(one, str)]
        parts += (kind.condition_of(predicate, text) for kind in _NUMBERS for text in texts)
    return any_of(*parts)


_RENAMED: Final = {"Image": "ProcessName"}
_READINGS: Final = {
    "TargetObject": _target_object,
    "Details": _details,
    "EventType": _event_type,
    "EventID": _event_id,
}
"""Fields whose values event 4657 has in another form."""
