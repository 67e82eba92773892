"""Compiled atoms: the input of each, and its result."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from millstream.streams.functions.text.networks import address_of, network_of_text
from millstream.streams.rules.called_function import function_of
from millstream.streams.rules.conditions import Op, Predicate, TextStep
from millstream.streams.rules.reference import any_true, apply_steps, number_of, presence_of, text_of

__all__ = ["BACKTRACKED_CHARACTERS", "Elements", "Form", "FormKind", "PredicateTest", "answer_of", "predicate_test_of"]

BACKTRACKED_CHARACTERS: Final = 65_536
"""Characters of one text that Python's `re` reads in the stage, from its start; regular expressions on hyperscan read
all of it."""

Ask = Callable[[Any], bool | None]
"""What an atom answers to a form of a value, None among them; None is unknown."""


class FormKind(StrEnum):
    """What an atom looks at of a value."""

    RAW = "raw"
    TEXT = "text"
    NUMBER = "number"
    ADDRESS = "address"


class Form(NamedTuple):
    """A field's value as some atoms look at it; they share it."""

    field: str
    kind: FormKind
    steps: tuple[TextStep, ...] = ()
    lower: bool = False
    whole_lists: bool = False

    def of(self, value: Any) -> Any:
        """The form of a value; None for None, and where the value has none."""
        if value is None or self.kind is FormKind.RAW:
            return value
        if self.kind is FormKind.NUMBER:
            return number_of(value)
        if self.kind is FormKind.ADDRESS:
            return address_of(text_of(value))
        text = apply_steps(text_of(value), self.steps)
        return text.lower() if self.lower else text


class Elements(tuple[Any, ...]):
    """The forms of the elements of a list."""


def answer_of(ask: Ask, formed: Any) -> bool | None:
    """The answer to a form, or to those of a list."""
    return any_true(map(ask, formed)) if type(formed) is Elements else ask(formed)


class PredicateTest(NamedTuple):
    """An atom, the form that it looks at, and what it answers to that.

    `other` is the second field of those of `OF_TWO_FIELDS`, and `fits` says whether texts of both are what is asked.
    `risky` ones run code or expressions of users: they may raise, or take long.
    """

    predicate: Predicate
    form: Form
    ask: Ask
    other: Form | None = None
    risky: bool = False
    fits: Callable[[str, str], bool] = str.__eq__


def predicate_test_of(predicate: Predicate) -> PredicateTest:
    """The atom, ready. Raises ValueError, TypeError or ImportError where its operands say nothing that can be asked."""
    return _MAKERS[predicate.op](predicate)


def _text_form(predicate: Predicate, *, lower: bool | None = None) -> Form:
    return Form(
        predicate.field,
        FormKind.TEXT,
        predicate.steps,
        predicate.caseless if lower is None else lower,
        predicate.whole_lists,
    )


def _form(predicate: Predicate, kind: FormKind) -> Form:
    return Form(predicate.field, kind, whole_lists=predicate.whole_lists)


def _operand(predicate: Predicate, number: int = 0) -> str:
    operand = str(predicate.operands[number])
    return operand.lower() if predicate.caseless else operand


def _in(predicate: Predicate) -> PredicateTest:
    first, absent = predicate.operands[0] if predicate.operands else "", predicate.absent
    if isinstance(first, str):
        texts = frozenset(_operand(predicate, number) for number in range(len(predicate.operands)))
        return PredicateTest(predicate, _text_form(predicate), lambda text: absent if text is None else text in texts)
    if isinstance(first, bool):
        answers = {text: said in predicate.operands for text, said in (("true", True), ("false", False))}
        return PredicateTest(
            predicate, _form(predicate, FormKind.TEXT)._replace(lower=True), lambda text: answers.get(text, absent)
        )
    numbers = frozenset(predicate.operands)
    form = _form(predicate, FormKind.NUMBER)
    return PredicateTest(predicate, form, lambda number: absent if number is None else number in numbers)


def _comparison_maker(test: Callable[[Any, Any], bool]) -> Callable[[Predicate], PredicateTest]:
    def make(predicate: Predicate) -> PredicateTest:
        (operand,) = predicate.operands
        absent = predicate.absent
        form = _text_form(predicate) if isinstance(operand, str) else _form(predicate, FormKind.NUMBER)
        bound: Any = _operand(predicate) if isinstance(operand, str) else operand
        return PredicateTest(predicate, form, lambda value: absent if value is None else test(value, bound))

    return make


def _contains(predicate: Predicate) -> PredicateTest:
    part, absent = _operand(predicate), predicate.absent
    return PredicateTest(predicate, _text_form(predicate), lambda text: absent if text is None else part in text)


def _starts(predicate: Predicate) -> PredicateTest:
    part, absent = _operand(predicate), predicate.absent
    return PredicateTest(
        predicate, _text_form(predicate), lambda text: absent if text is None else text.startswith(part)
    )


def _ends(predicate: Predicate) -> PredicateTest:
    part, absent = _operand(predicate), predicate.absent
    return PredicateTest(predicate, _text_form(predicate), lambda text: absent if text is None else text.endswith(part))


def _matches(predicate: Predicate) -> PredicateTest:
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        search = re.compile(str(predicate.operands[0]), re.IGNORECASE if predicate.caseless else 0).search
    absent = predicate.absent

    def ask(text: str | None) -> bool | None:
        return absent if text is None else search(text[:BACKTRACKED_CHARACTERS]) is not None

    return PredicateTest(predicate, _text_form(predicate, lower=False), ask, risky=True)


def _cidr(predicate: Predicate) -> PredicateTest:
    networks = tuple(network_of_text(str(one)) for one in predicate.operands)
    absent = predicate.absent

    def ask(address: Any) -> bool | None:
        return absent if address is None else any(address in network for network in networks)

    return PredicateTest(predicate, _form(predicate, FormKind.ADDRESS), ask)


def _is_null(predicate: Predicate) -> PredicateTest:
    return PredicateTest(predicate, _form(predicate, FormKind.RAW), lambda value: value is None)


def _exists(predicate: Predicate) -> PredicateTest:
    return PredicateTest(predicate, Form(presence_of(predicate.field), FormKind.RAW), lambda there: there is True)


def _two_fields(fits: Callable[[str, str], bool]) -> Callable[[Predicate], PredicateTest]:
    def make(predicate: Predicate) -> PredicateTest:
        other = _text_form(predicate)._replace(field=str(predicate.operands[0]))
        return PredicateTest(predicate, _text_form(predicate), lambda _text: predicate.absent, other=other, fits=fits)

    return make


def _call(predicate: Predicate) -> PredicateTest:
    function = function_of(str(predicate.operands[0]))
    arguments, absent = predicate.operands[1:], predicate.absent

    def ask(value: Any) -> bool | None:
        result = None if value is None else function(value, *arguments)
        return absent if result is None else bool(result)

    return PredicateTest(predicate, _form(predicate, FormKind.RAW), ask, risky=True)


_MAKERS: Final[dict[Op, Callable[[Predicate], PredicateTest]]] = {
    Op.IN: _in,
    Op.LESS: _comparison_maker(operator.lt),
    Op.LESS_EQUAL: _comparison_maker(operator.le),
    Op.GREATER: _comparison_maker(operator.gt),
    Op.GREATER_EQUAL: _comparison_maker(operator.ge),
    Op.CONTAINS: _contains,
    Op.STARTS: _starts,
    Op.ENDS: _ends,
    Op.MATCHES: _matches,
    Op.CIDR: _cidr,
    Op.IS_NULL: _is_null,
    Op.EXISTS: _exists,
    Op.EQUALS_FIELD: _two_fields(str.__eq__),
    Op.CONTAINS_FIELD: _two_fields(str.__contains__),
    Op.STARTS_FIELD: _two_fields(str.startswith),
    Op.ENDS_FIELD: _two_fields(str.endswith),
    Op.CALL: _call,
}
