"""The keys and values that tools keep in a nameserver."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.cluster import key_values as module
from millstream.cluster.key_values import KeyValues
from millstream.model.errors import MillstreamError, StoreError
from millstream.store.snapshot import Snapshot


def test_what_was_put_outlives_a_restart_and_what_was_deleted_is_gone(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "kv.json")
    kept = KeyValues(snapshot)
    kept.put("n", "a", "1")
    kept.put("n", "b", "2")
    kept.put("n", "a", "3")
    kept.put("other", "a", "4")
    kept.delete("n", "b")
    kept.delete("other", "a")
    kept.delete("n", "never")
    again = KeyValues(snapshot)
    assert again.table("n") == {"a": "3"}
    assert (again.get("n", "a"), again.get("n", "b"), again.get("other", "a")) == ("3", None, None)


@pytest.mark.parametrize(
    ("namespace", "key", "value"), [("n" * 256, "k", "v"), ("n", "k" * 256, "v"), ("n", "k", "é" * 8193)]
)
def test_names_and_values_have_their_limits(namespace: str, key: str, value: str) -> None:
    kept = KeyValues()
    with pytest.raises(MillstreamError) as refused:
        kept.put(namespace, key, value)
    assert refused.value.name == "ILLEGAL_SETTING"
    assert kept.table(namespace) == {}


def test_there_is_a_limit_to_the_number_of_keys_but_not_to_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEY_VALUES", 2)
    kept = KeyValues()
    kept.put("n", "a", "1")
    kept.put("m", "a", "1")
    kept.put("n", "a", "2")
    with pytest.raises(MillstreamError) as refused:
        kept.put("n", "b", "1")
    assert refused.value.name == "TOO_MANY_REQUESTS"


@pytest.mark.parametrize("saved", [b"{}", b"[", b'{"version":2,"namespaces":{}}'])
def test_a_saved_form_that_is_not_known_is_refused(tmp_path: Path, saved: bytes) -> None:
    snapshot = Snapshot(tmp_path / "kv.json")
    snapshot.save(saved)
    with pytest.raises(StoreError) as refused:
        KeyValues(snapshot)
    assert refused.value.name == "STORE_FORMAT"


def test_a_value_that_cannot_be_saved_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = KeyValues(Snapshot(tmp_path / "file" / "kv.json"))
    with pytest.raises(StoreError):
        kept.put("n", "a", "1")
    assert kept.get("n", "a") is None
