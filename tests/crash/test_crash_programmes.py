"""The crash programmes at the size for every commit: nothing that was promised is lost, altered or out of order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest
from crash.catalogue import PROGRAMMES, run_programme
from crash.in_network import SKIPPED
from crash.programme import ProgrammeRun, Size

from smoke_tests import SMOKED_PROGRAMMES

pytestmark = pytest.mark.kill


SEED = 20
WORKERS = 3
"""Of the programmes that run at a time one waits for a server, most of the time."""
BY_LENGTH = (
    "C6",
    "X2",
    "S3",
    "C4",
    "C3",
    "C5",
    "N3",
    "N4",
    "N2",
    "S1",
    "S22",
    "S5",
    "N1",
    "S4",
    "X1",
    "S14",
    "X4",
    "X7",
    "X5",
    "S2",
    "S6",
    "C1",
    "C2",
    "S7",
    "S23",
    "S24",
)
"""The longest first, so that none is waited for alone."""
Counts = dict[str, int | float]
Passed = Callable[[str], Counts]


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Passed]:
    """The counts of a programme that passed. All run from the start, in fresh processes of their own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        runs: dict[str, Future[ProgrammeRun]] = {
            name: pool.submit(run_programme, name, seed=SEED, size=Size.CI, keep=tmp_path_factory.mktemp(name))
            for name in BY_LENGTH
        }

        def counts(name: str) -> Counts:
            run = runs[name].result()
            assert not run.failures, run.verdict(f"{name} {PROGRAMMES[name].title}", 0.0)
            return run.counts

        yield counts


def counts_with_a_network(passed: Passed, name: str) -> Counts:
    counts = passed(name)
    if SKIPPED in counts:
        pytest.skip("this machine lets nobody here make a network namespace, so nothing was cut")
    return counts


@pytest.mark.parametrize("name", SMOKED_PROGRAMMES)
def test_a_tenth_of_a_programme_passes(name: str, tmp_path: Path) -> None:
    run = run_programme(name, seed=SEED, size=Size.SMOKE, keep=tmp_path)
    assert not run.failures, run.verdict(f"{name} {PROGRAMMES[name].title}", 0.0)
    assert run.counts


def test_s1_a_tail_torn_at_any_byte_costs_what_was_torn_and_nothing_else(passed: Passed) -> None:
    assert passed("S1")["starts"] >= 3_000


def test_s2_every_flipped_bit_is_found_and_none_is_served(passed: Passed) -> None:
    counts = passed("S2")
    assert counts["flips"] >= 80_000
    assert counts["starts"] >= 500


def test_s3_every_legal_disk_after_a_crash_keeps_the_promises(passed: Passed) -> None:
    assert passed("S3")["states"] >= 5_000


@pytest.mark.official
def test_s4_a_server_killed_under_load_loses_and_alters_nothing(passed: Passed) -> None:
    counts = passed("S4")
    assert counts["kills"] >= 10
    assert counts["acknowledged"] >= 500


def test_s5_a_broker_killed_inside_its_features_finishes_each_message_once(passed: Passed) -> None:
    counts = passed("S5")
    assert counts["kills"] >= 25
    assert min(counts[what] for what in ("acknowledged", "recalled", "committed", "delivered_again")) > 0


def test_s6_power_failures_cost_sync_flush_nothing_and_async_flush_its_window_at_most(passed: Passed) -> None:
    counts = passed("S6")
    assert counts["cuts"] >= 200
    assert counts["records_lost"] > 0


def test_s7_a_disk_that_fails_anywhere_is_met_with_the_right_error_and_survived(passed: Passed) -> None:
    assert passed("S7")["faults"] >= 200


def test_c1_controllers_agree_under_any_faults_and_recover(passed: Passed) -> None:
    counts = passed("C1")
    assert counts["groups"] >= 200
    assert min(counts[what] for what in ("elections", "crashes", "snapshots_installed", "reads")) > 0


def test_c2_a_set_of_replicas_keeps_what_it_acknowledged_under_any_faults_and_recovers(passed: Passed) -> None:
    counts = passed("C2")
    assert counts["sets"] >= 8
    assert min(counts[what] for what in ("acknowledged", "elections", "kills", "cuts")) > 0


def test_c6_a_hundred_failovers_lose_alter_reorder_and_invent_nothing(passed: Passed) -> None:
    counts = passed("C6")
    assert counts["kill_master"] == 100
    assert counts["acknowledged"] > 1_000


@pytest.mark.official
def test_c3_masters_killed_under_load_lose_nothing_and_a_rolling_restart_fails_no_send(passed: Passed) -> None:
    counts = counts_with_a_network(passed, "C3")
    assert min(counts[what] for what in ("kill_master", "kill_replica", "kill_leader", "stop_master")) > 0
    assert counts["rolling_restart"] == 3
    assert min(counts["direct_acknowledged"], counts["proxy_acknowledged"]) > 100


@pytest.mark.official
def test_c4_masters_cut_off_or_stopped_acknowledge_nothing_that_another_one_lacks(passed: Passed) -> None:
    counts = counts_with_a_network(passed, "C4")
    assert counts["pause_master"] == counts["isolate_master_with_controller"] == 1
    assert counts["lock_overlap_ms"] == 0
    assert min(counts["direct_acknowledged"], counts["proxy_acknowledged"]) > 100


def test_c5_false_and_broken_replicas_take_and_give_nothing_and_stop_nobody(passed: Passed) -> None:
    counts = counts_with_a_network(passed, "C5")
    assert min(counts[what] for what in ("without_right", "lies", "claims", "full_disks", "flips")) > 0
    assert counts["acknowledged"] > 100


def test_n1_no_send_fails_and_nothing_is_lost_while_all_nameservers_are_dead(passed: Passed) -> None:
    counts = passed("N1")
    assert counts["rounds"] == 1
    assert counts["acknowledged"] > 40


def test_n2_brokers_come_and_go_under_load_and_nothing_acknowledged_is_lost(passed: Passed) -> None:
    counts = passed("N2")
    assert min(counts[what] for what in ("added", "drained", "killed")) > 0


@pytest.mark.official
def test_n3_a_proxy_cut_off_from_a_broker_refuses_in_time_serves_from_the_others_and_comes_back(passed: Passed) -> None:
    counts = counts_with_a_network(passed, "N3")
    assert counts["cuts"] >= 1
    assert counts["acknowledged"] > 100


def test_n4_sends_go_on_at_brokers_cut_off_from_nameservers_that_hear_of_them_again(passed: Passed) -> None:
    counts = counts_with_a_network(passed, "N4")
    assert counts["cuts"] >= 2
    assert counts["acknowledged"] > 100


def test_x1_no_bytes_of_a_client_stop_the_server_or_touch_another_client(passed: Passed) -> None:
    counts = passed("X1")
    assert counts["inputs"] >= 12_000
    assert counts["answered"] >= 5_000
    assert counts["beside"] >= 100


def test_x2_slow_clients_take_bounded_memory_and_delay_nobody(passed: Passed) -> None:
    counts = passed("X2")
    assert counts["half_requests_taken"] > 0
    assert counts["beside"] >= 100


def test_x3_no_frame_stops_broker_or_nameserver_or_touches_another_client(passed: Passed) -> None:
    counts = passed("X4")
    assert counts["inputs"] >= 8_000
    assert counts["answered"] >= 3_000
    assert counts["beside"] >= 50


def test_x7_no_client_of_mqtt_amqp_or_http_stops_a_port_or_takes_memory_without_bound(passed: Passed) -> None:
    counts = passed("X7")
    assert counts["inputs"] >= 3_000
    assert min(counts[what] for what in ("probes", "connects", "ports_half_messages_kib", "ports_unread_kib")) > 0
    assert counts["event_clients"] >= 1_000
    assert min(counts[f"ports_event_{what}_kib"] for what in ("halves", "floods", "unread")) > 0


def test_x5_no_frames_of_a_client_break_the_core_of_http2_or_make_it_hold_more_than_it_may(passed: Passed) -> None:
    counts = passed("X5")
    assert counts["inputs"] >= 3_000
    assert counts["connections that ended"] > 100
    assert counts["connections that went on"] > 100


def test_s22_a_broker_killed_inside_tiered_storage_has_each_message_once_and_leaves_no_orphan(passed: Passed) -> None:
    counts = passed("S22")
    assert counts["kills"] >= 20
    assert counts["restores"] >= 2
    assert min(counts[what] for what in ("kept", "read_meanwhile", "objects")) > 0


def test_s23_a_lost_disk_comes_back_from_the_object_store_with_each_message_once(passed: Passed) -> None:
    counts = passed("S23")
    assert counts["read"] == 4_000
    assert counts["objects"] > 0


def test_s24_a_broker_whose_cold_process_is_killed_goes_on_and_has_each_message_once(passed: Passed) -> None:
    counts = passed("S24")
    assert counts["kills"] >= 2
    assert counts["process_starts"] >= counts["kills"]
    assert min(counts[what] for what in ("uploads", "kept", "read_meanwhile", "objects")) > 0


def test_s14_a_clock_that_is_put_forward_and_back_hides_and_repeats_nothing(passed: Passed) -> None:
    counts = passed("S14")
    assert counts["steps"] >= 10
    assert counts["acknowledged"] == counts["stored"] == 120


def test_x4_frames_that_do_not_end_and_answers_unread_leave_memory_and_a_producer_beside_alone(passed: Passed) -> None:
    counts = passed("X4")
    assert counts["steady_sent"] >= 50
    attacks = ("half_frames", "half_signed_frames", "unread_pulls", "unread_polls")
    assert all(counts[f"{attack}_mib"] <= 300 for attack in attacks)


def test_x4_strangers_take_no_descriptor_of_the_store_fill_no_log_and_delay_nobody_with_keys(passed: Passed) -> None:
    counts = passed("X4")
    assert counts["silent_connections"] > counts["silent_descriptors"]
    assert counts["strangers_uses"] == 2
    assert counts["grown_messages"] > 100
    assert counts["strangers_beside"] >= 50
