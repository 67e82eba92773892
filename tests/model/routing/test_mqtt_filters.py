"""MQTT filters against a matcher that does what the specification says, and nothing clever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import NameRefused
from millstream.model.routing.mqtt_filters import KEPT_HOLDERS, KEPT_NAMES, MAX_LEVELS, MqttFilters, check_mqtt_filter

LEVELS = st.sampled_from(["", "a", "b", "$SYS", "$a"])
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(bool)
FILTERS = (
    st.tuples(st.lists(st.one_of(LEVELS, st.just("+")), max_size=4), st.booleans())
    .map(lambda parts: "/".join([*parts[0], *(["#"] if parts[1] else [])]))
    .filter(bool)
)


def fits(text: str, name: str) -> bool:
    if name.startswith("$") and text[0] in "+#":
        return False
    wanted, levels = text.split("/"), name.split("/")
    for number, level in enumerate(wanted):
        if level == "#":
            return len(levels) >= number
        if number >= len(levels) or level not in ("+", levels[number]):
            return False
    return len(wanted) == len(levels)


@given(st.lists(st.tuples(FILTERS, st.integers(0, 3)), max_size=12), st.data())
def test_a_name_finds_the_holders_whose_filters_it_fits_also_after_some_are_removed(
    held: list[tuple[str, int]], data: st.DataObject
) -> None:
    trie: MqttFilters[int] = MqttFilters()
    kept: set[tuple[str, int]] = set()
    name = data.draw(NAMES)
    for text, holder in held:
        check_mqtt_filter(text)
        assert trie.add(text, holder) is ((text, holder) not in kept)
        kept.add((text, holder))
        # Asked between changes as well: what is remembered of a name must not outlive one.
        assert set(trie.match(name)) == {holder for text, holder in kept if fits(text, name)}
    gone = data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []
    for text, holder in gone:
        assert trie.remove(text, holder)
        assert not trie.remove(text, holder)
        kept.discard((text, holder))
        assert set(trie.match(name)) == {holder for text, holder in kept if fits(text, name)}
    assert len(trie) == len(kept)
    assert set(trie.match(name)) == {holder for text, holder in kept if fits(text, name)}


@pytest.mark.parametrize("text", ["a/b", "a/#"])
def test_a_filter_has_as_many_holders_as_come_and_none_of_those_that_go(text: str) -> None:
    trie: MqttFilters[int] = MqttFilters()
    for holder in range(10):
        assert trie.add(text, holder)
        assert not trie.add(text, holder)
        assert list(trie.match("a/b")) == [*range(holder + 1)]
    for holder in range(10):
        assert trie.remove(text, holder)
        assert not trie.remove(text, holder)
        assert list(trie.match("a/b")) == [*range(holder + 1, 10)]
    assert trie._root.is_blank


def test_a_trie_whose_filters_are_all_removed_holds_nothing() -> None:
    trie: MqttFilters[int] = MqttFilters()
    texts = ["a/b/c", "a/+/c", "#", "a/b/#", "/", "+"]
    for text in texts:
        trie.add(text, 1)
    for text in texts:
        trie.remove(text, 1)
    assert trie._root.is_blank


@pytest.mark.parametrize(
    ("text", "name", "is_fit"),
    [
        ("sport/tennis/#", "sport/tennis", True),
        ("sport/#", "sport", True),
        ("#", "a/b", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("a/$b/+", "a/$b/c", True),
    ],
)
def test_the_examples_of_the_specification_hold(text: str, name: str, is_fit: bool) -> None:
    trie: MqttFilters[str] = MqttFilters()
    trie.add(text, "one")
    assert bool(trie.match(name)) is is_fit
    assert fits(text, name) is is_fit


@pytest.mark.parametrize("text", ["", "a+", "a/b+/c", "#/a", "a#", "a/#/b", "a\0", "/" * MAX_LEVELS, "x" * 65_536])
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(NameRefused, match="MS-2113"):
        check_mqtt_filter(text)


def test_only_so_many_names_are_remembered() -> None:
    trie: MqttFilters[int] = MqttFilters()
    trie.add("#", 1)
    for number in range(KEPT_NAMES + 10):
        assert set(trie.match(f"a/{number}")) == {1}
    assert len(trie._known) <= KEPT_NAMES
    trie.match("x" * 300)
    assert "x" * 300 not in trie._known
    for holder in range(KEPT_HOLDERS + 1):
        trie.add("wide", holder)
    assert len(trie.match("wide")) == KEPT_HOLDERS + 1
    assert "wide" not in trie._known
