"""SQL92 filters: what they mean, against a plain evaluator, and what is refused where."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.model.filter import ALL, FilterKind, MessageFilter, java_hash_code, parse_tag_filter
from millstream.model.sql_filter import parse_filter, parse_sql_filter
from millstream.model.sql_filter_parser import MAX_CONDITIONS, MAX_DEPTH, MAX_LIST_ITEMS
from millstream.model.sql_filter_terms import MAX_NUMBER_CHARACTERS

Tree = tuple[Any, ...]
Properties = Mapping[str, str]

NAMES = ["a", "b", "TAGS", "_$x.y"]
TEXTS = ["1", "2.5", "-3", "05", "1e2", "+1", " 1", "1_0", "0x1", "NaN", "abc", "b", "true", "False", "", "it's", "٣"]
NUMBERS = ["0", "1", "-3", "2.5", "+1", "1e2", "5L", ".5", "2."]
ORDERS = ["<", "<=", ">", ">="]
TESTS = ["CONTAINS", "STARTSWITH", "ENDSWITH"]


def passes(expression: str, **properties: str) -> bool:
    return parse_sql_filter(expression).matches(properties)


def truth(expression: str, **properties: str) -> bool | None:
    """Three values out of a filter that shows two."""
    if passes(expression, **properties):
        return True
    return False if passes(f"NOT ({expression})", **properties) else None


# The plain evaluator takes conditions as numbers: 1 is true, 0 false, 1/2 unknown.


def plain_number(text: str) -> Decimal | None:
    return Decimal(text) if text and set(text) <= set("0123456789+-.eE") else None


def plain_value(leaf: Tree, properties: Properties) -> str | None:
    kind, text = leaf
    return properties.get(text) if kind == "name" else None if kind == "null" else text.rstrip("L")


def plain_equal(left: Tree, right: Tree, properties: Properties) -> float:
    kinds = {left[0], right[0]}
    values = [plain_value(left, properties), plain_value(right, properties)]
    if None in values or kinds == {"number", "truth"}:
        return 0.5
    texts = [str(value) for value in values]
    if "number" in kinds:
        numbers = [plain_number(text) for text in texts]
        return 0.5 if None in numbers else float(numbers[0] == numbers[1])
    if "truth" in kinds:
        lower = [text.lower() for text in texts]
        return float(lower[0] == lower[1]) if set(lower) <= {"true", "false"} else 0.5
    return float(texts[0] == texts[1])


def plain_order(left: Tree, order: str, right: Tree, properties: Properties) -> float:
    values = [plain_value(left, properties), plain_value(right, properties)]
    numbers = [None if value is None else plain_number(value) for value in values]
    if numbers[0] is None or numbers[1] is None:
        return 0.5
    signs = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (1, 0)}
    return float(numbers[0].compare(numbers[1]) in signs[order])


def plain(tree: Tree, properties: Properties) -> float:
    match tree:
        case ("and", parts):
            return min(plain(part, properties) for part in parts)
        case ("or", parts):
            return max(plain(part, properties) for part in parts)
        case ("not", part):
            return 1 - plain(part, properties)
        case ("is true", part):
            return plain(part, properties)
        case ("unknown", ("name", name)):
            return float(name not in properties)
        case ("unknown", part):
            return float(plain(part, properties) == 0.5)
        case (("name" | "truth" | "null") as kind, str(text)):
            return {"true": 1.0, "false": 0.0}.get((plain_value((kind, text), properties) or "").lower(), 0.5)
    return plain_predicate(tree, properties)


def plain_predicate(tree: Tree, properties: Properties) -> float:
    match tree:
        case ("equal", left, right):
            return plain_equal(left, right, properties)
        case ("order", left, order, right):
            return plain_order(left, order, right, properties)
        case ("between", name, low, high):
            return min(plain_order(name, ">=", low, properties), plain_order(name, "<=", high, properties))
        case ("in", (_, name), texts):
            return float(properties[name] in texts) if name in properties else 0.5
        case ("test", (_, name), test, text):
            if name not in properties:
                return 0.5
            own = properties[name]
            found = {"CONTAINS": own.find(text) >= 0, "STARTSWITH": own[: len(text)] == text}
            return float(found.get(test, own[len(own) - len(text) :] == text and len(text) <= len(own)))
    (_, (_, name)) = tree
    return float(name not in properties)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def leaf_text(leaf: Tree) -> str:
    kind, text = leaf
    return quoted(text) if kind == "text" else "Null" if kind == "null" else str(text)


def written(tree: Tree, level: int = 0) -> str:
    """`level` is how strongly the surroundings bind: 0 OR, 1 AND, 2 NOT, 3 a predicate's operand."""
    own = {"or": 0, "and": 1, "not": 2, "leaf": 3}.get(
        tree[0], 2 if len(tree) > 2 or tree[0] in ("null", "unknown", "is true") else 3
    )
    text = _written(tree)
    return f"({text})" if own < level else text


def _written(tree: Tree) -> str:
    match tree:
        case ("and", parts):
            return " AND ".join(written(part, 2) for part in parts)
        case ("or", parts):
            return " or ".join(written(part, 1) for part in parts)
        case ("not", part):
            return _denied(part)
        case ("unknown", part):
            return f"{written(part, 3)} IS NULL"
        case ("is true", part):
            return f"{written(part, 3)} = TRUE"
        case _:
            return _predicate(tree)


def _denied(tree: Tree) -> str:
    """NOT, in the shorter form where the language has one."""
    match tree:
        case ("in", name, texts):
            return f"{leaf_text(name)} NOT IN ({','.join(map(quoted, texts))})"
        case ("between", name, low, high):
            return f"{leaf_text(name)} not between {leaf_text(low)} AND {leaf_text(high)}"
        case ("test", name, test, text):
            return f"{leaf_text(name)} NOT {test} {quoted(text)}"
        case ("null", (_, name)):
            return f"{name} IS NOT NULL"
        case ("equal", left, right):
            return f"{leaf_text(left)}<>{leaf_text(right)}"
        case _:
            return f"NOT {written(tree, 2)}"


def _predicate(tree: Tree) -> str:
    match tree:
        case ("equal", left, right):
            return f"{leaf_text(left)} = {leaf_text(right)}"
        case ("order", left, order, right):
            return f"{leaf_text(left)}{order} {leaf_text(right)}"
        case ("between", name, low, high):
            return f"{leaf_text(name)} BETWEEN {leaf_text(low)} AND {leaf_text(high)}"
        case ("in", name, texts):
            return f"{leaf_text(name)} in ( {' , '.join(map(quoted, texts))} )"
        case ("test", name, test, text):
            return f"{leaf_text(name)} {test} {quoted(text)}"
        case ("null", (_, name)):
            return f"{name} IS /* no */ NULL"
    return leaf_text(tree)


names = st.tuples(st.just("name"), st.sampled_from(NAMES))
numbers = st.tuples(st.just("number"), st.sampled_from(NUMBERS))
texts = st.tuples(st.just("text"), st.sampled_from(TEXTS))
truths = st.tuples(st.just("truth"), st.sampled_from(["TRUE", "false"]))
nulls = st.just(("null", ""))
sized = st.one_of(names, numbers, nulls, st.just(("text", "2.5")))
ranges = st.tuples(numbers, numbers).filter(lambda pair: float(pair[0][1].strip("L")) <= float(pair[1][1].strip("L")))
lists = st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4)
anything = st.one_of(names, numbers, texts, truths, nulls)
predicates = st.one_of(
    st.tuples(st.just("equal"), anything, anything),
    st.tuples(st.just("equal"), st.just(("name", "TAGS")), texts),
    st.tuples(st.just("order"), sized, st.sampled_from(ORDERS), sized),
    st.tuples(names, ranges).map(lambda pair: ("between", pair[0], *pair[1])),
    st.tuples(st.just("between"), names, names, numbers),
    st.tuples(st.just("in"), names, lists),
    st.tuples(st.just("test"), names, st.sampled_from(TESTS), st.sampled_from([*TEXTS, "b", "e", "1"])),
    st.tuples(st.just("null"), names),
    names,
    truths,
)


def deeper(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.tuples(st.just("and"), several),
        st.tuples(st.just("or"), several),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("unknown"), inner),
        st.tuples(st.just("is true"), inner),
    )


trees = st.recursive(predicates, deeper, max_leaves=8)
messages = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS))


@given(trees, messages)
def test_a_filter_passes_what_the_plain_evaluator_finds_true(tree: Tree, properties: dict[str, str]) -> None:
    wanted = parse_sql_filter(written(tree))
    assert wanted.matches(properties) == (plain(tree, properties) == 1)


@given(trees, messages)
def test_no_message_that_passes_is_passed_over_by_its_hash_code(tree: Tree, properties: dict[str, str]) -> None:
    wanted = parse_sql_filter(written(tree))
    if wanted.matches(properties):
        assert wanted.may_match(java_hash_code(properties.get("TAGS", "")))


VALUES = {"TRUE": 1.0, "FALSE": 0.0, "NULL": 0.5}
SHOWN = {1.0: True, 0.0: False, 0.5: None}


@pytest.mark.parametrize(("left", "right"), [*itertools.product(VALUES, VALUES)])
def test_and_and_or_follow_three_valued_logic(left: str, right: str) -> None:
    assert truth(f"{left} AND {right}") is SHOWN[min(VALUES[left], VALUES[right])]
    assert truth(f"{left} OR {right}") is SHOWN[max(VALUES[left], VALUES[right])]


@pytest.mark.parametrize("value", VALUES)
def test_not_keeps_the_unknown(value: str) -> None:
    assert truth(f"NOT {value}") is SHOWN[1 - VALUES[value]]
    assert truth(f"{value} IS NULL") is (value == "NULL")
    assert truth(f"(1 = 2 OR {value}) IS NOT NULL") is (value != "NULL")


@pytest.mark.parametrize(
    "expression",
    ["x = 1", "x <> 1", "x > 1", "x = 'a'", "x <> 'a'", "x IN ('a')", "x NOT IN ('a')", "x BETWEEN 1 AND 2",
     "x NOT BETWEEN 1 AND 2", "x CONTAINS 'a'", "x NOT CONTAINS 'a'", "x NOT STARTSWITH 'a'", "x NOT ENDSWITH 'a'",
     "x = TRUE", "x = NULL", "x", "x = y"],
)  # fmt: skip
def test_a_missing_property_makes_a_comparison_unknown(expression: str) -> None:
    assert truth(expression) is None


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("x = 5", "5", True),
        ("x = 5", "5.0", True),
        ("x = 5", "+05", True),
        ("x = '5'", "5.0", False),
        ("x > 4.5", "5", True),
        ("x > 3", "3.5", True),
        ("x < -1", "-2", True),
        ("x < 10", "9", True),
        ("x >= 1e2", "100", True),
        ("x = 5L", "5", True),
        ("x > 5", "abc", None),
        ("x = 5", "", None),
        ("x = 5", " 5", None),
        ("x = 5", "5_0", None),
        ("x < 5", "nan", None),
        ("x < 5", "٣", None),
        ("x > 5", "9" * (MAX_NUMBER_CHARACTERS + 1), None),
        ("x > 9223372036854775807", "9223372036854775808", True),
        ("x = 9007199254740993", "9007199254740992", False),
        ("x > '4'", "5", True),
        ("x BETWEEN 1 AND 3", "1", True),
        ("x BETWEEN 1 AND 3", "3", True),
        ("x NOT BETWEEN 1 AND 3", "3.1", True),
        ("x BETWEEN 1 AND NULL", "0", False),
        ("x = TRUE", "True", True),
        ("x", "TRUE", True),
        ("NOT x", "false", True),
        ("x", "yes", None),
        ("x = 'it''s'", "it's", True),
        ("x IN ('a', 'b')", "b", True),
        ("x NOT IN ('a', 'b')", "c", True),
        ("x CONTAINS 'ell'", "hello", True),
        ("x STARTSWITH 'he' AND x ENDSWITH 'lo'", "hello", True),
        ("x NOT STARTSWITH 'he'", "she", True),
        ("x = 'A'", "a", False),
        ("X = 'a'", "a", None),
        ("NOT x = 5", "6", True),
        ("NOT x IS NULL", "6", True),
        ("x = 1 OR x = 2 AND x = 3", "1", True),
        ("(x = 1 OR x = 2) AND x = 3", "1", False),
        ("x = 1 -- AND x = 2\n OR /* x = 4\n OR */ x = 3", "3", True),
    ],
)
def test_properties_are_read_as_what_they_are_compared_with(expression: str, value: str, expected: bool | None) -> None:
    assert truth(expression, x=value) is expected


def test_reserved_properties_can_be_asked_for_as_well() -> None:
    assert passes("TAGS = 'red' AND KEYS CONTAINS 'k1'", TAGS="red", KEYS="k0 k1")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TAGS = 'a'", "a"),
        ("'a' = TAGS AND x > 5", "a"),
        ("TAGS IN ('a', 'b') AND TAGS IN ('b', 'c')", "b"),
        ("TAGS = 'a' OR (TAGS IN ('b', 'c') AND x IS NULL)", "abc"),
        ("TAGS = 'a' OR x > 5", "abcd"),
        ("TAGS <> 'a'", "abcd"),
        ("NOT TAGS = 'a'", "abcd"),
        ("TAGS NOT IN ('a')", "abcd"),
        ("(TAGS = 'a') = FALSE", "abcd"),
        ("TAGS IS NULL", "abcd"),
        ("x = 'a'", "abcd"),
    ],
)
def test_a_filter_that_asks_for_tags_passes_over_others_by_their_hash_code(expression: str, tags: str) -> None:
    wanted = parse_sql_filter(expression)
    assert [tag for tag in "abcd" if wanted.may_match(java_hash_code(tag))] == list(tags)


@pytest.mark.parametrize(
    ("expression", "position", "words"),
    [
        ("", 1, "expected a property, a value or (, found the end"),
        ("  -- nothing", 13, "found the end"),
        ("a >", 4, "expected a property, a value or (, found the end"),
        ("a > > 5", 5, "found >"),
        ("a = 5 b = 6", 7, "expected an operator, AND, OR or the end, found b"),
        ("a = b = c", 7, "expected an operator, AND, OR or the end, found ="),
        ("(a = 5", 7, "expected ), found the end"),
        ("a = 5)", 6, "expected an operator, AND, OR or the end, found )"),
        ("a + 1 > 5", 3, "found +"),
        ("a ; b", 3, "expected a name, a value or an operator, found ';'"),
        ("a = 'x''", 5, "expected a quote that ends the text"),
        ('a = "x"', 5, "expected a text in single quotes, found a double quote"),
        ("a > 'abc'", 5, "expected a number or a property, found a text"),
        ("a > TRUE", 5, "expected a number or a property, found a condition"),
        ("a BETWEEN 'x' AND 5", 11, "expected a number or a property"),
        ("a BETWEEN 1 OR 5", 13, "expected AND, found OR"),
        ("a BETWEEN 5 AND 1", 11, "5 AND 1 have nothing between them"),
        ("a IN (1)", 7, "expected a text in single quotes, found 1"),
        ("a IN ()", 7, "expected a text in single quotes, found )"),
        ("a IN 'x'", 6, "expected (, found 'x'"),
        ("5 IN ('x')", 1, "expected a property before IN, found a number"),
        ("a CONTAINS b", 12, "expected a text in single quotes, found b"),
        ("a NOT = 5", 7, "expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH, found ="),
        ("a LIKE 'x%'", 3, "expected CONTAINS, STARTSWITH or ENDSWITH, found LIKE"),
        ("a IS 5", 6, "expected NULL, found 5"),
        ("a = - b", 7, "expected a number after -, found b"),
        ("5", 1, "expected a condition, found a number"),
        ("a = 1 AND 'x'", 11, "expected a condition, found a text"),
        ("NOT 5", 5, "expected a condition, found a number"),
        ("a = 9223372036854775808", 5, "expected a number up to 9223372036854775807"),
        ("a = " + "9" * 5000, 5, "expected a number up to"),
        ("a = 1e999", 5, "expected a number within the range of a double"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_position(expression: str, position: int, words: str) -> None:
    with pytest.raises(MessageRefused) as refusal:
        parse_sql_filter(expression)
    assert refusal.value.name == "ILLEGAL_FILTER"
    assert refusal.value.message.startswith(f"The filter cannot be read at character {position}: ")
    assert words in refusal.value.message
    assert len(refusal.value.message) < 200


def test_the_least_whole_number_can_be_written() -> None:
    assert passes("x = -9223372036854775808", x="-9223372036854775808")


@pytest.mark.parametrize(
    ("start", "end"), [("(", ")"), ("NOT ", ""), ("NOT (", ")"), ("a = 1 AND (", ")"), ("(", ") IS NULL")]
)
def test_deep_nesting_is_refused(start: str, end: str) -> None:
    levels = MAX_DEPTH // (2 if start == "NOT (" else 1)
    parse_sql_filter(start * levels + "a = 1" + end * levels)
    for amount in (levels + 1, 500):
        with pytest.raises(MessageRefused, match=f"at most {MAX_DEPTH} parentheses and NOTs"):
            parse_sql_filter(start * amount + "a = 1" + end * amount)


def test_a_filter_with_too_many_conditions_is_refused() -> None:
    assert passes(" AND ".join(["a = 1"] * MAX_CONDITIONS), a="1")
    with pytest.raises(MessageRefused, match=f"at most {MAX_CONDITIONS} conditions"):
        parse_sql_filter(" OR ".join(["a IS NULL"] * (MAX_CONDITIONS + 1)))


def test_a_long_list_is_refused() -> None:
    assert passes("a IN (" + ",".join(f"'{number}'" for number in range(MAX_LIST_ITEMS)) + ")", a="7")
    with pytest.raises(MessageRefused, match=f"character 6: expected a list of at most {MAX_LIST_ITEMS} texts"):
        parse_sql_filter("a IN (" + ",".join(["'1'"] * (MAX_LIST_ITEMS + 1)) + ")")


def test_an_endless_filter_is_refused() -> None:
    with pytest.raises(MessageRefused, match="16384"):
        parse_sql_filter("a = '" + "x" * 16384 + "'")


@given(st.text(st.sampled_from("aIN ('x')=<>1.e-+,NOTAND/*"), max_size=30))
def test_whatever_the_text_the_answer_is_a_filter_or_a_refusal(expression: str) -> None:
    with suppress(MessageRefused):
        parse_sql_filter(expression).matches({"a": "1"})


@pytest.mark.parametrize(
    ("kind", "expression", "same"),
    [
        ("TAG", "b || a", parse_tag_filter("a||b")),
        ("", "*", ALL),
        ("SQL92", "a > 5", parse_sql_filter("a > 5")),
    ],
)
def test_a_filter_is_made_again_from_its_kind_and_text(kind: str, expression: str, same: MessageFilter) -> None:
    made = parse_filter(kind, expression)
    assert made == same
    assert parse_filter(made.kind, made.expression) == made
    assert made.kind == (kind or "TAG")
    assert made.takes_all == (expression == "*")


def test_filters_of_unknown_kinds_are_refused() -> None:
    with pytest.raises(MessageRefused, match="'LUA'"):
        parse_filter("LUA", "return true")
    assert list(FilterKind) == ["TAG", "SQL92"]


def test_judging_a_message_costs_more_with_more_conditions() -> None:
    one, many = (parse_sql_filter(" OR ".join(["a = 1"] * amount)).read_cost for amount in (1, 100))
    assert many - one == 99
    assert 0 < parse_tag_filter("a").read_cost < one
