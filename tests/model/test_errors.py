"""The error catalogue and how an error reads."""

from millstream.model.catalogue import CATALOGUE, find_entry
from millstream.model.errors import NameRefused, TimedOut, Unreachable


def test_every_number_is_given_once() -> None:
    numbers = [entry.number for entry in CATALOGUE.values()]
    assert len(numbers) == len(set(numbers))


def test_an_error_reads_as_sentence_remedy_and_number() -> None:
    error = NameRefused("TOPIC_NOT_FOUND", 'Topic "orders" does not exist.')
    assert str(error) == 'Topic "orders" does not exist. Create it: millstream topic create NAME. [MS-2101]'


def test_exit_codes_follow_the_kind_of_error() -> None:
    assert NameRefused("TOPIC_NOT_FOUND", "x").exit_code == 1
    assert Unreachable("x").exit_code == 3
    assert TimedOut("x").exit_code == 4


def test_entries_are_found_by_number() -> None:
    entry = find_entry(2101)
    assert entry is not None
    assert entry.name == "TOPIC_NOT_FOUND"
    assert find_entry(9999) is None
