"""Where a rule set finds fields in events of several recorders."""

from __future__ import annotations

from unittest import mock

import msgspec
import numpy as np
from drawn_rules import VALUES
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.rules.event_rows import DeepFields, Places
from millstream.streams.rules.reference import field_reader, presence_of, value_at, whole_text
from millstream.streams.rules.stage.raw_events import EventReader

PATHS = {"Image": (("Image",), ("event_data", "Image"), ("EventData", "Image")), "": ((),)}


def test_the_first_place_that_holds_a_value_counts() -> None:
    event = {"Image": None, "event_data": {"Image": "a.exe"}, "EventData": {"Image": "b.exe"}}
    assert field_reader(event, PATHS)("Image") == "a.exe"
    assert field_reader({"Image": "", "event_data": {"Image": "a.exe"}}, PATHS)("Image") == ""


def test_a_field_without_places_is_a_key_of_the_event() -> None:
    assert field_reader({"Other": 3}, PATHS)("Other") == 3
    assert field_reader({"event_data": {"Other": 3}}, PATHS)("Other") is None


def test_a_text_that_spells_an_object_is_looked_into() -> None:
    assert field_reader({"EventData": '{"Image":"b.exe"}'}, PATHS)("Image") == "b.exe"
    assert value_at({"a": '{"b":"{\\"c\\":1}"}'}, ("a", "b", "c")) == 1


def test_a_text_that_spells_something_else_holds_no_fields() -> None:
    for text in ("Image", "[1]", "{", '{"Image"', "{}", ""):
        assert value_at({"EventData": text}, ("EventData", "Image")) is None


def test_the_whole_event_is_its_values_and_not_its_keys() -> None:
    event = {"a": "one\ntwo", "b": 3, "c": None, "d": {"e": ["x", {"f": True}], "g": "last"}}
    assert field_reader(event, PATHS)("") == "one\ntwo\n3\nx\ntrue\nlast"
    assert whole_text({}) == ""


DEEP = {
    "c": (("nested", "c"), ("c",)),
    "d": (("d",), ("nested", "x", "d"), ("nested", "x"), ("other", "d")),
    "list->x": (("nested", "c", "x"), ("other", "x")),
    "": ((),),
    "late": (("nested", "c"), ()),
}
_OBJECTS = st.recursive(
    VALUES | st.sampled_from(("{}", '{"c":1}', '{"d":{"x":null}}', '{"x":"{\\"d\\":2}"}', "{", "[1]")),
    lambda inner: st.dictionaries(st.sampled_from("cdx"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)


@settings(deadline=None, max_examples=scaled(100))
@given(st.dictionaries(st.sampled_from(("nested", "other", "c", "d", "x")), _OBJECTS, max_size=4))
def test_a_reader_that_looks_up_each_object_once_says_what_the_plain_one_says(event) -> None:
    read, plain = DeepFields(DEEP).reader(event), field_reader(event, DEEP)
    for name in (*DEEP, *map(presence_of, DEEP), "other", "x"):
        assert repr(read(name)) == repr(plain(name))


def test_a_text_that_spells_an_object_is_read_once_however_many_fields_are_asked_of_many_events() -> None:
    bodies = [b'{"EventData":"{\\"Image\\":\\"%d.exe\\",\\"User\\":\\"u\\"}"}' % number for number in range(40)]
    paths = {name: (("EventData", name),) for name in ("Image", "User", "Other")}
    with mock.patch.object(msgspec.json, "decode", wraps=msgspec.json.decode) as decode:
        events, _ = EventReader(Places(paths), ("User",)).read(bodies)
        assert events.distinct("Image").values == [f"{number}.exe" for number in range(40)]
        assert events.distinct("User").values == ["u"]
        assert events.part(np.arange(20)).distinct("Other").values == [None]
    assert decode.call_count == len(bodies)
