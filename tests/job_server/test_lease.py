"""For how long a server may run jobs."""

from __future__ import annotations

from millstream.broker.queues.queue_locks import LOCK_LIMIT_S
from millstream.job_server.driver import STOP_S
from millstream.job_server.lease import RENEW_S, TRUST_S, Lease


def test_a_lock_is_trusted_from_before_it_was_asked_for() -> None:
    lease = Lease()
    assert not lease.is_held(0.0)
    lease.grant(10.0)
    assert lease.is_held(10.0 + TRUST_S - 0.1)
    assert not lease.is_held(10.0 + TRUST_S)
    lease.lose()
    assert not lease.is_held(10.0)


def test_drivers_have_time_to_end_before_the_broker_gives_the_lock_away() -> None:
    assert TRUST_S + STOP_S < LOCK_LIMIT_S
    assert 3 * RENEW_S < TRUST_S
