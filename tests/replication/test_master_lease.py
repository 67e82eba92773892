"""The lease of a master."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.replication.master_lease import MasterLease, takeover_wait_s


def test_the_lease_counts_from_when_the_request_was_sent() -> None:
    lease = MasterLease()
    lease.renew(1, sent_s=10.0, lease_s=3.0)
    assert lease.is_held(1, 12.9)
    assert not lease.is_held(1, 13.0)


def test_an_older_answer_shortens_nothing_and_another_epoch_begins_anew() -> None:
    lease = MasterLease()
    lease.renew(2, sent_s=10.0, lease_s=3.0)
    lease.renew(2, sent_s=5.0, lease_s=3.0)
    lease.renew(1, sent_s=100.0, lease_s=3.0)
    assert lease.is_held(2, 12.0)
    assert not lease.is_held(1, 12.0)
    assert not lease.is_held(2, 50.0)
    lease.renew(3, sent_s=0.0, lease_s=3.0)
    assert not lease.is_held(2, 1.0)
    lease.drop()
    assert not lease.is_held(3, 1.0)


@given(
    speed=st.floats(0.96, 1.04), lease_s=st.floats(0.1, 60.0), sent_s=st.floats(0.0, 10.0), flight_s=st.floats(0.0, 5.0)
)
def test_the_next_master_waits_until_the_lease_has_ended_however_the_clocks_drift(
    speed: float, lease_s: float, sent_s: float, flight_s: float
) -> None:
    """The controller answers after `flight_s` and waits by its own clock; the master's runs at `speed` of that."""
    lease = MasterLease()
    lease.renew(1, sent_s * speed, lease_s)
    takes_over_s = sent_s + flight_s + takeover_wait_s(lease_s)
    assert not lease.is_held(1, takes_over_s * speed + 1e-9)
