"""Rules over nested events: the plain judge and the stage find what a second reading of the rules finds."""

from __future__ import annotations

from random import Random

import orjson
import pytest
import yaml
from nested_by_hand import drawn_detection, drawn_event, fits
from written_rules import EVERYTHING, read_text

from millstream.streams.rules.event_rows import Places
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.raw_events import EventReader
from millstream.streams.rules.stage.stage import RuleStage

RULES, EVENTS, REPEATS = 120, 150, 6
SOURCES = ({"product": "gcp", "service": "gcp.audit"}, {"product": "macos"}, {"category": "proxy"})


@pytest.mark.parametrize("seed", [1, 2])
def test_events_of_objects_and_lists_fit_the_rules_that_a_second_reading_says(seed: int) -> None:
    chance = Random(seed)
    detections = [drawn_detection(chance) for _ in range(RULES)]
    texts = [
        yaml.safe_dump({"title": "t", "id": str(number), "logsource": SOURCES[number % 3], "detection": detection})
        for number, detection in enumerate(detections)
    ]
    read = read_text("---\n".join(texts), mapping=EVERYTHING)
    assert read.refused == ()
    events = [drawn_event(chance) for _ in range(EVENTS)]
    wanted = {
        (row, number)
        for row, event in enumerate(events)
        for number, detection in enumerate(detections)
        if fits(detection, event)
    }
    assert len(wanted) > EVENTS
    found = {
        (row, number)
        for row, event in enumerate(events)
        for number, rule in enumerate(read.rules)
        if evaluate(rule.condition, field_reader(event, read.paths))
    }
    assert found == wanted
    stage = RuleStage(RuleSet(1, read.rules, read.paths))
    reader = EventReader(Places(read.paths), stage.class_fields)
    hits = stage.evaluate(reader.read([orjson.dumps(event) for event in events] * REPEATS)[0])
    assert {(row % EVENTS, number) for row, number in zip(hits.rows, hits.rules, strict=True)} == wanted
    assert len(hits.rows) == len(wanted) * REPEATS
