"""Events whose fields are lists: a condition on a field holds where it holds for one element."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from written_rules import fits, read_text, rule_of

from millstream.streams.rules.event_rows import ArrowEvents, JsonEvents, Places
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.raw_events import EventReader
from millstream.streams.rules.stage.stage import RuleStage

ROLE = "arn:aws:iam::1:role/Admin"
RESOURCES = {"resources": [{"ARN": "arn:aws:s3:::logs", "type": "Bucket"}, {"ARN": ROLE}, {"type": None}, "text", None]}

CASES: list[tuple[str, dict[str, Any], bool]] = [
    ("F: b", {"F": ["a", "B"]}, True),
    ("F: c", {"F": ["a", "b"]}, False),
    ("F: b", {"F": ["a", ["x", ["b"]]]}, True),
    ("F: ''", {"F": ["a", ""]}, True),
    ("F: ''", {"F": []}, False),
    ('F: \'["a","b"]\'', {"F": ["a", "b"]}, False),
    ("F: 7", {"F": [3, "7"]}, True),
    ("F: true", {"F": [False, "True"]}, True),
    ("F: false", {"F": [True]}, False),
    ("F|contains|all: [ab, cd]", {"F": ["xabx", "xcdx"]}, True),
    ("F|contains|all: [ab, cd]", {"F": ["xabx", "c", "d"]}, False),
    ("F|contains: 'a\",\"b'", {"F": ["a", "b"]}, False),
    ("F|startswith: b", {"F": ["ab", "ba"]}, True),
    ("F|endswith: b", {"F": ["ab", "ba"]}, True),
    ("F|endswith: c", {"F": ["ab", "ba"]}, False),
    ("F|re: '^b$'", {"F": ["a", "b", "c"]}, True),
    ("F|re: '^a.*c$'", {"F": ["a", "b", "c"]}, False),
    ("F: 'a*c'", {"F": ["a", "c", "abc"]}, True),
    ("F|cidr: 10.0.0.0/8", {"F": ["192.0.2.1", "10.3.2.1"]}, True),
    ("F|cidr: 10.0.0.0/8", {"F": ["192.0.2.1", 10]}, False),
    ("F|gt: 100", {"F": [1, 200]}, True),
    ("F|lt: 1", {"F": [1, 200, "x"]}, False),
    ("F|hour: 8", {"F": ["2026-11-21T07:30", "2026-11-21T08:30"]}, True),
    ("F|neq: a", {"F": ["a", "b"]}, False),
    ("F|neq: a", {"F": ["c", "b"]}, True),
    ("F: '*'", {"F": []}, False),
    ("F: '*'", {"F": [None]}, False),
    ("F: '*'", {"F": [None, "a"]}, True),
    ("F: null", {"F": [None, "a"]}, True),
    ("F: null", {"F": ["a"]}, False),
    ("F: null", {"F": []}, False),
    ("F|exists: true", {"F": []}, True),
    ("F|exists: false", {"F": [None]}, False),
    ("F|fieldref: G", {"F": ["a", "b"], "G": ["c", "B"]}, True),
    ("F|fieldref: G", {"F": "b", "G": ["c", "b"]}, True),
    ("F|fieldref: G", {"F": ["a", "b"], "G": "c"}, False),
    ("F|fieldref: G", {"F": ["a", None], "G": ["c", None]}, False),
    ("resources.ARN|endswith: /admin", RESOURCES, True),
    ("resources.ARN|endswith: /other", RESOURCES, False),
    ("resources.type: bucket", RESOURCES, True),
    ("resources.type: null", RESOURCES, True),
    ("resources.ARN: null", RESOURCES, False),
    ("resources.other: null", RESOURCES, True),
    ("resources.ARN|exists: true", RESOURCES, True),
    ("resources.other|exists: true", RESOURCES, False),
    ("a.b.c: x", {"a": [{"b": [{"c": "y"}, {"c": ["z", "x"]}]}, {"b": {"c": "w"}}]}, True),
    ("a.b.c: v", {"a": [{"b": [{"c": "y"}, {"c": ["z", "x"]}]}, {"b": {"c": "w"}}]}, False),
    ("a.b.c: w", {"a": [[{"b": {"c": "w"}}]]}, True),
]


@pytest.mark.parametrize(("item", "event", "expected"), CASES)
def test_a_condition_on_a_list_holds_where_it_holds_for_an_element(
    item: str, event: dict[str, Any], expected: bool
) -> None:
    assert fits(f"    s:\n        {item}\n    condition: s\n", event) is expected
    assert fits(f"    s:\n        {item}\n    condition: not s\n", event) is not expected


@pytest.mark.long
@pytest.mark.parametrize("many", [1, 400])
def test_the_stage_divides_lists_as_the_plain_judge_does(many: int) -> None:
    items = list(dict.fromkeys(item for item, _, _ in CASES))
    made = [rule_of(f"    s:\n        {item}\n    condition: s\n") for item in items]
    rules = tuple(rule for rule in made for _ in range(2))
    texts = "\n---\n".join(rule.text for rule in made)
    rule_set = RuleSet(1, rules, read_text(texts.replace("id: 6f1b1a6c", "x: 6f1b1a6c")).paths)
    events = [{"Channel": "Security", **event} for _, event, _ in CASES] * many
    wanted = {
        (row, number)
        for row, event in enumerate(events[: len(CASES)])
        for number, item in enumerate(items)
        if fits(f"    s:\n        {item}\n    condition: s\n", event)
    }
    stage = RuleStage(rule_set)
    raw = EventReader(Places(rule_set.paths), stage.class_fields).read([orjson.dumps(event) for event in events])[0]
    for rows in (JsonEvents(events, rule_set.paths), raw):
        hits = stage.evaluate(rows)
        found = {(row % len(CASES), rule // 2) for row, rule in zip(hits.rows, hits.rules, strict=True)}
        assert found == wanted
        assert len(hits.rows) == len(wanted) * many * 2


def test_lists_of_a_record_batch_are_divided_as_well() -> None:
    import pyarrow as pa

    rule = rule_of("    s:\n        F|contains: b\n    condition: s\n")
    batch = pa.record_batch({"Channel": ["Security"] * 3, "F": [["a", "abc"], [], None]})
    hits = RuleStage(RuleSet(1, (rule,))).evaluate(ArrowEvents(batch, {}))
    assert hits.rows.tolist() == [0]
