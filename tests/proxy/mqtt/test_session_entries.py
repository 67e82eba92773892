"""What is kept in memory of the last record of each session."""

from __future__ import annotations

import pytest

from millstream.proxy.mqtt.session_entries import SessionEntries, SessionEntry
from millstream.proxy.mqtt.session_records import StoredDelivery, StoredSession, StoredSubscription, StoredWill

SUBSCRIPTION = StoredSubscription("a/+", 1, True, True, 7)
WILL = StoredWill("will", b"gone", 1)
HERE = StoredSession("c 1", "ann", "proxy-17", "proxy", 60, 0, True, [SUBSCRIPTION], WILL)
AWAY = StoredSession("c", away_ms=5_000, expiry_s=10)


@pytest.mark.parametrize(
    "session",
    [HERE, AWAY, StoredSession("c", claim="other-1", proxy="proxy"), StoredSession("c", claim="of an older version")],
)
def test_a_session_comes_out_as_it_was_put_in(session: StoredSession) -> None:
    entries = SessionEntries()
    entries.put("c", 0, session, keeps=True)
    assert entries.get("c") == SessionEntry(0, None, session.claim, session)


@pytest.mark.parametrize(
    ("session", "keeps"),
    [(HERE, False), (StoredSession("c", claim="p-1", proxy="p", unfinished=[StoredDelivery(1, "a", "b", 0)]), True)],
)
def test_of_a_session_that_is_not_kept_the_claim_is_known(session: StoredSession, keeps: bool) -> None:
    entries = SessionEntries()
    entries.put("c", 4, session, keeps=keeps)
    assert entries.get("c") == SessionEntry(4, None, session.claim, None)


def test_each_record_knows_the_one_before_it_until_the_key_is_gone() -> None:
    entries = SessionEntries()
    for offset in (3, 8, 9):
        entries.put("c", offset, HERE, keeps=True)
    entries.put("c/2", 10, None, keeps=False)
    held = entries.get("c")
    assert held is not None
    assert (held.offset, held.before) == (9, 8)
    assert entries.get("c/2") == SessionEntry(10, None, "", None)
    entries.remove("c")
    entries.remove("c")
    assert entries.get("c") is None
    entries.put("c", 11, HERE, keeps=True)
    held = entries.get("c")
    assert held is not None
    assert held.before is None


def test_sessions_that_are_over_or_left_a_will_or_whose_proxy_is_gone_are_found() -> None:
    entries = SessionEntries()
    entries.put("live", 0, HERE, keeps=True)
    entries.put("gone", 1, StoredSession("gone", claim="old-1", proxy="old"), keeps=True)
    entries.put("nameless", 2, StoredSession("nameless", claim="x"), keeps=True)
    entries.put("over", 3, AWAY, keeps=False)
    entries.put("later", 4, StoredSession("later", away_ms=5_001, expiry_s=10), keeps=True)
    entries.put("left", 5, StoredSession("left", away_ms=9_000, expiry_s=99, will=WILL), keeps=False)
    entries.put("left/2", 6, None, keeps=False)

    def found(now_ms: int, wills_ms: int) -> list[str]:
        return sorted(entries.find_unattended({"proxy"}, now_ms, wills_ms))

    assert found(14_999, 8_999) == ["gone", "nameless"]
    assert found(15_000, 9_000) == ["gone", "left", "nameless", "over"]


def test_a_session_costs_little_beside_its_key() -> None:
    entries = SessionEntries()
    session = StoredSession("held-99999", "", "abcdef123456-12500", "abcdef123456", 604_800, 0, True)
    session.subscriptions = [StoredSubscription("held/99999", 1)]
    entries.put("held-99999", 1 << 20, session, keeps=True)
    assert len(entries._entries["held-99999"]) <= 80
