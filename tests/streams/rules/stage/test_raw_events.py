"""Events that are judged by their JSON first: nothing is missed, however it is spelled, and little of it is read."""

from __future__ import annotations

import json
import re
import sys
from unittest import mock

import hypothesis.strategies as st
import orjson
import pytest
from drawn_rules import EVENTS, FORMULAS, PATHS
from hypothesis import HealthCheck, assume, given, settings
from stages import plain_hits, rule_set, stage_hits

from example_counts import scaled
from millstream.streams.rules.conditions import Op, Predicate, all_of
from millstream.streams.rules.engines import raw_texts
from millstream.streams.rules.engines.raw_texts import needed_words, raw_text_filter
from millstream.streams.rules.event_rows import Places
from millstream.streams.rules.reference import answer, field_reader, text_of
from millstream.streams.rules.stage import class_plan as class_sieve
from millstream.streams.rules.stage.raw_events import EventReader
from millstream.streams.rules.stage.stage import RuleStage

PLACES = Places(PATHS)


def by_numbers(wanted, digits="%04x"):
    """The JSON in which the characters that are wanted, as far as a text has them, stand by their numbers."""

    def spell(event):
        if isinstance(event, str):
            return (
                '"'
                + "".join(
                    f"\\u{digits % ord(c)}" if c < "\U00010000" and wanted(c) else json.dumps(c)[1:-1] for c in event
                )
                + '"'
            )
        if isinstance(event, dict):
            return "{" + ",".join(f"{spell(key)}:{spell(value)}" for key, value in event.items()) + "}"
        return f"[{','.join(map(spell, event))}]" if isinstance(event, list) else json.dumps(event)

    return lambda event: spell(event).encode()


SPELLINGS = (
    by_numbers(str.isascii),
    by_numbers(lambda one: one in "0123456789.-\\/\"'", "%04X"),
    by_numbers(lambda one: one in "akTruefal s"),
    orjson.dumps,
    lambda event: json.dumps(event).encode(),
    lambda event: json.dumps(event, ensure_ascii=False).replace("/", "\\/").encode(),
    lambda event: json.dumps(event, indent=1, separators=("\t,", " :\r\n")).encode(),
    lambda event: json.dumps(event).replace("b", "\\u0062").encode(),
)


def spelled(spelling, event):
    try:
        return spelling(event)
    except TypeError:  # orjson has no numbers that large
        return json.dumps(event).encode()


def at_once(words=0):
    return mock.patch.multiple(class_sieve, _WATCHED_EVENTS=1, _WATCHED_PER_ATOM=words, _MOST_PASS=1.0)


WORDS = st.text('abkKtruefals\\\\/" {}[]:,\n\u212aİıſßéΣσ.10-', min_size=1, max_size=8)
HELD = st.one_of(
    WORDS, WORDS, st.integers(-30, 30), st.sampled_from((1.5, 1e300, True, False)), st.lists(WORDS, min_size=1, max_size=2),
    st.dictionaries(WORDS, WORDS, min_size=1, max_size=2),
)  # fmt: skip


@pytest.mark.parametrize(
    ("op", "operand", "body"),
    [
        (Op.IN, "word", b'{"c":"Word"}'),
        (Op.IN, "", b'{"c":""}'),
        (Op.IN, "-", b'{"c":"-"}'),
        (Op.IN, 33, b'{"c":33}'),
        (Op.IN, 33, b'{"c": "033" }'),
        (Op.IN, 33, b'{"c":3.3e1}'),
        (Op.IN, "33", b'{"c":33}'),
        (Op.IN, "true", b'{"c":true}'),
        (Op.STARTS, "wor", b'{"c":"Word"}'),
        (Op.ENDS, "ord", b'{"c":"Word"}'),
        (Op.ENDS, "rue", b'{"c":true}'),
        (Op.CONTAINS, "kelvin", '{"c":"\u212aelvin"}'.encode()),
        (Op.CONTAINS, "kelvin", b'{"c":"\\u212aelvin"}'),
        (Op.CONTAINS, "word", b'{"c":"\\u0077ord"}'),
        (Op.CONTAINS, "word", b'{"\\u0063":"word"}'),
        (Op.CONTAINS, "a/b", b'{"c":"a\\/b"}'),
        (Op.CONTAINS, "a\\b", b'{"c":"a\\\\b"}'),
        (Op.CONTAINS, "\\new", b'{"c":["a\\new"]}'),
        (Op.CONTAINS, '","', b'{"c" : ["a" , "b"]}'),
        (Op.CONTAINS, '":"', b'{"c"  :  {"a" : "b"}}'),
        (Op.IN, "word", b'{"c": [1, [ "Word"]]}'),
        (Op.IN, 33, b'{"c":[32,"33"]}'),
        (Op.ENDS, "word", b'{"nested":[{"d":1},{"c":["a","A word"]}]}'),
        (Op.CONTAINS, "\u03c3\u03c2", '{"c":"x\u03a3\u03a3"}'.encode()),
        (Op.CONTAINS, "ull", b'{"c":1e999}'),
        (Op.CONTAINS, "0000", b'{"c":1e300}'),
        (Op.MATCHES, "si+lent", '{"c":"\u017filent"}'.encode()),
    ],
)
def test_however_the_json_spells_it_a_value_is_shown_or_no_filter_is_made(op, operand, body):
    predicate = Predicate(
        "c", op, (operand,), caseless=isinstance(operand, str), whole_lists=operand in ("\\new", '","')
    )
    (event,), _ = EventReader(PLACES, ()).read([body])
    found = raw_text_filter([predicate], PLACES)
    assert answer(predicate, field_reader(event, PATHS)) or found is None
    assert found is None or found.rows([b'{"e":1}', body]).tolist() == [1]


@settings(
    deadline=None, max_examples=scaled(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(HELD, st.data(), st.sampled_from((Op.CONTAINS, Op.STARTS, Op.ENDS, Op.IN, Op.MATCHES)), st.booleans())
def test_an_event_whose_json_shows_nothing_of_an_atom_does_not_have_it(value, data, op, caseless):
    body = spelled(data.draw(st.sampled_from(SPELLINGS)), {"c": value})
    whole_lists = data.draw(st.booleans())
    held = orjson.loads(body)["c"]
    text = text_of(held if whole_lists or not isinstance(held, list) else data.draw(st.sampled_from(held)))
    begin = 0 if op in (Op.STARTS, Op.IN) else data.draw(st.integers(0, max(0, len(text) - 1)))
    end = len(text) if op in (Op.ENDS, Op.IN) else data.draw(st.integers(begin + 1, len(text)))
    word = text[begin:end].swapcase() if caseless else text[begin:end]
    number = isinstance(value, int) and op is Op.IN and data.draw(st.booleans())
    operand = value if number else re.escape(word) if op is Op.MATCHES else word
    predicate = Predicate("c", op, (operand,), caseless=caseless and not number, whole_lists=whole_lists)
    assume(answer(predicate, field_reader(orjson.loads(body), PATHS)) is True)
    found = raw_text_filter([predicate], PLACES)
    assert found is None or found.rows([b"{}", body]).tolist() == [1]


@settings(deadline=None, max_examples=scaled(30), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(FORMULAS, min_size=1, max_size=8),
    st.lists(st.tuples(EVENTS, st.sampled_from(SPELLINGS)), min_size=2, max_size=12),
)
def test_the_stage_says_of_unread_events_what_the_plain_judge_says(conditions, drawn):
    rules = rule_set(*conditions, paths=PATHS)
    stage = RuleStage(rules)
    bodies = [spelled(spelling, event) for event, spelling in drawn]
    wanted = plain_hits(rules, [orjson.loads(body) for body in bodies])
    with at_once():
        for _ in range(3):
            events, refused = EventReader(PLACES, stage.class_fields).read(bodies)
            assert (stage_hits(stage, events), refused) == (wanted, [])


def is_in(field, *values):
    return Predicate(field, Op.IN, values, caseless=isinstance(values[0], str))


def test_events_in_which_no_rule_finds_anything_are_not_read():
    conditions = [
        all_of(is_in("id", number % 4), Predicate("image", Op.ENDS, (f"\\a{number}.exe",), caseless=True))
        for number in range(40)
    ]
    rules = rule_set(*conditions)
    stage = RuleStage(rules)
    bodies = [
        json.dumps({"id": number % 5, "image": f"C:\\A{number}.exe", "more": ["x"]}).encode() for number in range(4000)
    ]
    with at_once():
        for _ in range(2):
            events, _ = EventReader(Places(rules.paths), stage.class_fields).read(bodies)
            assert stage_hits(stage, events) == plain_hits(rules, [orjson.loads(body) for body in bodies])
    assert len(events.unread().rows) > 3_900


def test_a_sieve_that_lets_most_pass_is_given_up():
    conditions = [all_of(is_in("id", 1), Predicate("text", Op.CONTAINS, (f"word{number}",))) for number in range(10)]
    stage = RuleStage(rule_set(*conditions))
    (plan,) = [plan for plan, _ in stage._plans.parts(read(stage, 1_000, "x"))]
    stage_hits(stage, read(stage, 1_000, "x"))
    assert plan._sieve.is_on
    stage_hits(stage, read(stage, 1_000, "word1"))
    assert not plan._sieve.is_on


def read(stage, count, word):
    body = json.dumps({"id": 1, "text": f"a {word} b"}).encode()
    return EventReader(Places({}), stage.class_fields).read([body] * count)[0]


@pytest.mark.parametrize(
    "body",
    [
        b"{}", b' {"a" : [1, {"b": null}]} ', b'{"a":1}{}', b'{"a":1,}', b"", b"null", b"[1]", b'"a"', b"7", b"true",
        b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\\ud800"}', b'{"a":"\\ud83d\\ude00"}', b'{"a":01}',
        b'{"a":"\x01"}', b'{"a":"\\x"}', b'{"a":nan}', b'{"a":-}', b'{"a":1e5}', b'{"id":{"x":1}}', b'{"id":"\\ud800"}',
        b'{"i\\u0064":3}', b'{"id":3,"id":2}', b'{"nested":{"c":1}}', b'{"nested":null}', b"\xef\xbb\xbf{}",
        b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}", b'{"id":123456789012345678901234567890}',
    ],
)  # fmt: skip
def test_the_same_bodies_are_events_as_for_a_reader_of_everything(body):
    reader = EventReader(PLACES, ("id", "c"))
    events, refused = reader.read([b'{"id":1}', memoryview(body)])
    try:
        wanted = orjson.loads(body)
    except ValueError as error:
        wanted, reason = None, str(error)
    else:
        reason = "an event is a JSON object, not "
    if isinstance(wanted, dict):
        assert (list(events), refused) == ([{"id": 1}, wanted], [])
        assert events.distinct("id").values == [1, wanted.get("id")]
    else:
        assert (list(events), [one.place for one in refused]) == ([{"id": 1}], [1])
        assert refused[0].reason.startswith(reason[:200])


@pytest.mark.parametrize("body", [b'{"a":1e999}', b'{"id":1e999}', b'{"a":' + b"1" * 5_000 + b"}"])
def test_a_number_too_large_for_any_reader_is_infinite_and_its_event_is_judged(body):
    events, refused = EventReader(PLACES, ("id",)).read([body])
    assert (list(events[0].values()), refused) == ([float("inf")], [])


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("mimikatz", {"mimikatz"}),
        (r"a+\\Temp\\[a-z]{8}\.exe$", {"\\temp\\"}),
        (r"(?i)(Invoke-Mimi|sekurlsa)::\w", {"invoke-mimi", "sekurlsa"}),
        (r"(?:powershell)*", set()),
        (r"(?:powershell){2}", {"powershell"}),
        (r"powershell|\d+", set()),
        (r"(?!never)abc", set()),
        (r"12345678", set()),
        (r"x?yes?", set()),
        (r"(?>atomic)++", {"atomic"}),
    ],
)
def test_the_words_that_an_expression_needs(expression, words):
    assert needed_words(expression, 0) == words


def test_every_character_with_a_lower_case_is_looked_for_where_that_is():
    larger = raw_texts._larger_letters()
    every = ((one, one.lower()) for one in map(chr, range(0x80, sys.maxunicode + 1)))
    assert all(one in larger[part] for one, lower in every if lower != one for part in lower)
    assert larger["\u03c2"] == ["\u03a3"]


@pytest.mark.parametrize("first", [1, True, 1.0, "1", None])
def test_classes_are_told_apart_by_values_of_every_type(first):
    conditions = [
        all_of(Predicate("id", Op.IN, (held,)), Predicate("c", Op.CONTAINS, (word,)))
        for held in (1, 2, 3, True, 1.0, "1")
        for word in "xyz"
    ]
    rules = rule_set(*conditions, paths={"id": (("id",), ("deep", "id"), ("other",))})
    stage = RuleStage(rules)
    ids = ({"id": first}, {"id": 1}, {"other": 2}, {"deep": {"id": 3}}, {"id": None, "other": "1"}, {})
    bodies = [json.dumps({**held, "c": word}).encode() for held in ids for word in "xyz"]
    for _ in range(2):
        for several in (bodies, [body for body in bodies if b"deep" not in body]):
            events, refused = EventReader(Places(rules.paths), stage.class_fields).read(several)
            wanted = plain_hits(rules, [orjson.loads(body) for body in several])
            assert (stage_hits(stage, events), refused, stage.class_fields) == (wanted, [], ("id",))


def test_a_key_that_no_reader_can_look_for_is_found_all_the_same():
    paths = {"id": (('a"b\\',),), "c": (("c",),)}
    stage = RuleStage(rule_set(*[is_in("id", 1)] * 8, paths=paths))
    events, _ = EventReader(Places(paths), ("id",), ("c",)).read([rb'{"a\"b\\":1,"c":2.5}', b'{"c":3}'])
    assert stage.class_fields == ("id",)
    assert (stage_hits(stage, events), events.at(("c",))) == (plain_hits(stage.rule_set, list(events)), [2.5, 3])
    assert events.at(()) == ["1\n2.5", "3"]


@settings(deadline=None, max_examples=scaled(100))
@given(st.lists(EVENTS, min_size=1, max_size=12))
def test_tuples_of_fields_are_told_apart_in_deep_events_as_in_others(events):
    fields = ("c", "d")
    expected = [tuple(map(field_reader(event, PATHS), fields)) for event in events]
    read, _ = EventReader(PLACES, fields).read([spelled(orjson.dumps, event) for event in events])
    together = read.together(fields)
    # Whole numbers that 64 bits do not hold are read as floating-point ones.
    is_plain = all(
        type(value) in (str, type(None)) or (type(value) is int and -(2**63) <= value < 2**64)
        for row in expected
        for value in row
    )
    assert (together is not None) is is_plain
    if together is not None:
        assert [together.values[code] for code in together.codes.tolist()] == expected
