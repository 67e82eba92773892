"""Words in whole events are looked for in their JSON first: whatever way the JSON is spelled, none is missed."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.event_rows import JsonEvents
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.stage.stage import RuleStage

PATHS = {"": ((),)}


def found(words: tuple[str, ...], *raw: bytes) -> list[int]:
    rules = tuple(Rule(word, word, Predicate("", Op.CONTAINS, (word,), caseless=True)) for word in words)
    stage = RuleStage(RuleSet(1, rules, PATHS))
    events = [orjson.loads(one) for one in raw]
    told = stage.evaluate(JsonEvents(events, PATHS, [memoryview(one) for one in raw]))
    untold = RuleStage(RuleSet(1, rules, PATHS)).evaluate(JsonEvents(events, PATHS))
    assert (told.rows.tolist(), told.rules.tolist()) == (untold.rows.tolist(), untold.rules.tolist())
    return list(told.rows.tolist())


@pytest.mark.parametrize(
    ("word", "raw"),
    [
        ("mimikatz", b'{"a":"x MimiKatz y"}'),
        ("mimikatz", b'{"a":"\\u006dimi\\u004batz"}'),
        ("mimikatz", b'{"a":"mimiKatz"}'),
        ("mimikatz", b'{"a":"mimi\\u212Aatz"}'),
        ("\\temp\\x", b'{"a":"C:\\\\Temp\\\\x.exe"}'),
        ("\\temp\\x", b'{"a":"C:\\u005ctemp\\u005Cx"}'),
        ('say "hi"', b'{"a":{"b":["say \\"HI\\""]}}'),
        ("a/b/c", b'{"a":"a\\/b\\/c"}'),
        ("true", b'{"a":true}'),
        ("1000.0", b'{"a":1e3}'),
        ("word\nline", b'{"a":"word","b":"line"}'),
        ("i\u0307stanbul", '{"a":"İstanbul"}'.encode()),
    ],
)
def test_a_word_is_found_however_the_json_spells_it(word, raw):
    assert found((word,), b'{"a":"nothing"}', raw) == [1]


def test_the_name_of_a_field_is_no_word_of_the_event():
    assert found(("mimikatz",), b'{"mimikatz":"no"}', b'{"a":"mimikatz"}') == [1]


_PARTS = st.text('abK\\/"\n\u212aİßé1e.\x7f', max_size=5)


@settings(deadline=None, max_examples=scaled(60))
@given(
    st.lists(_PARTS.map(lambda part: f"{part}b/a{part}"), min_size=1, max_size=9, unique=True),
    st.lists(
        st.dictionaries(
            _PARTS, st.one_of(_PARTS, st.floats(allow_nan=False, allow_infinity=False), st.lists(_PARTS)), max_size=3
        ),
        max_size=5,
    ),
    st.booleans(),
    st.data(),
)
def test_the_json_tells_no_less_than_the_event(words, events, ascii_only, data):
    for event in events:
        event["more"] = data.draw(st.sampled_from(words)).swapcase()
    found(tuple(words), *(json.dumps(event, ensure_ascii=ascii_only).encode() for event in events))
