from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.client.routes import DENIAL_GRACE_S, ROUTE_LIFETIME_S, ROUTE_RETRY_S, KnownRoutes
from millstream.model.backoff import Backoff
from millstream.protocol.remoting.bodies import TopicRouteData

ROUTE = TopicRouteData()
FULL_WAITS = Backoff(ROUTE_RETRY_S, ROUTE_LIFETIME_S, random=lambda: 0.0)


def test_a_route_is_believed_for_its_lifetime_and_used_longer_while_nobody_answers() -> None:
    routes = KnownRoutes(FULL_WAITS)
    assert routes.note_no_answer("t", 0.0) is None
    routes.learn("t", ROUTE, 0.0)
    assert routes.fresh("t", ROUTE_LIFETIME_S - 0.1) is ROUTE
    assert routes.fresh("t", ROUTE_LIFETIME_S) is None
    assert routes.note_no_answer("t", ROUTE_LIFETIME_S) is ROUTE
    assert routes.fresh("t", ROUTE_LIFETIME_S + ROUTE_RETRY_S - 0.1) is ROUTE


def test_nameservers_that_hang_are_asked_ever_more_rarely_and_never_given_up() -> None:
    routes = KnownRoutes(FULL_WAITS)
    routes.learn("t", ROUTE, 0.0)
    now_s, asked = ROUTE_LIFETIME_S, 0
    while now_s < 3_600:
        if routes.fresh("t", now_s) is None:
            asked += 1
            assert routes.note_no_answer("t", now_s) is ROUTE
        now_s += 1
    assert 3_600 / ROUTE_LIFETIME_S - 2 <= asked <= 3_600 / ROUTE_LIFETIME_S + 5
    routes.learn("t", ROUTE, now_s)
    routes.doubt("t")
    assert routes.note_no_answer("t", now_s) is ROUTE
    assert routes.fresh("t", now_s + ROUTE_RETRY_S) is None


@given(st.lists(st.sampled_from(["deny", "doubt", "unanswered"]), max_size=30))
def test_a_topic_that_nameservers_deny_is_given_up_after_its_grace_and_not_before(steps: list[str]) -> None:
    routes, now_s = KnownRoutes(), 0.0
    routes.learn("t", ROUTE, now_s)
    first_denial_s: float | None = None
    for step in steps:
        now_s += 7.0
        if step == "deny":
            first_denial_s = now_s if first_denial_s is None else first_denial_s
            is_kept = now_s - first_denial_s < DENIAL_GRACE_S
            assert (routes.note_denial("t", now_s) is ROUTE) == is_kept
            if not is_kept:
                return
        elif step == "doubt":
            routes.doubt("t")
            assert routes.fresh("t", now_s) is None
        else:
            assert routes.note_no_answer("t", now_s) is ROUTE
    routes.forget("t")
    assert routes.note_no_answer("t", now_s) is None
