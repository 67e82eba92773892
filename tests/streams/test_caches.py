from pathlib import Path

import pytest

from millstream.streams.caches import cache_directory


def test_the_directory_is_the_users_unless_it_is_named_or_off(tmp_path: Path) -> None:
    assert cache_directory("some", "V", {"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "millstream" / "some"
    assert cache_directory("some", "V", {"XDG_CACHE_HOME": "/c", "V": str(tmp_path)}) == tmp_path
    assert cache_directory("some", "V", {"XDG_CACHE_HOME": "/c", "V": "off"}) is None
    assert cache_directory("some", "V", {}) == Path.home() / ".cache" / "millstream" / "some"


def test_a_user_without_a_home_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    assert cache_directory("some", "V", {}) is None
