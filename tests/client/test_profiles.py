from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.profiles import Profile, Profiles, profiles_path
from millstream.model.errors import StartRefused

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
profile_sets = st.dictionaries(texts, st.builds(Profile, texts, texts, texts, texts, texts), max_size=4)


@given(profile_sets, texts)
def test_what_is_written_is_read_again(profiles: dict[str, Profile], default: str) -> None:
    written = Profiles(profiles, default)
    assert Profiles.parse(written.text(), "file") == written


def test_the_default_profile_counts_where_none_is_named() -> None:
    profiles = Profiles({"a": Profile("a:1"), "b": Profile("b:1")}, "b")
    assert profiles.find(None).nameserver == "b:1"
    assert profiles.find("a").nameserver == "a:1"
    assert Profiles().find(None) == Profile()


def test_a_profile_that_there_is_not_is_refused() -> None:
    for profiles in (Profiles({"a": Profile()}), Profiles(default="gone")):
        with pytest.raises(StartRefused, match="no profile") as refused:
            profiles.find("gone")
        assert refused.value.name == "PROFILE_NOT_FOUND"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("profile = 5", "tables"),
        ("[profile]\na = 5", "tables"),
        ("[profile.a]\nnameservr = 'x'", "nameservr"),
        ("[profile.a]\nnameserver = 5", "nameserver = 5"),
        ("[", "no TOML"),
    ],
)
def test_a_file_that_says_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(StartRefused, match=words):
        Profiles.parse(text, "file")


def test_the_file_is_where_the_system_keeps_such_files() -> None:
    assert profiles_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/millstream/profiles.toml")
    assert profiles_path({}) == Path.home() / ".config" / "millstream" / "profiles.toml"
