"""Where a rule set finds fields in events of several recorders."""

from __future__ import annotations

from millstream.streams.rules.plain import field_reader, value_at, whole_text

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
