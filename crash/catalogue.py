"""The programmes by the ids that plans and reports call them by."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crash.bit_rot import find_every_flip
from crash.changing_brokers import change_brokers_under_load
from crash.cluster_faults import run_clusters
from crash.cold_kills import kill_inside_tiered_storage
from crash.cold_process_kills import kill_cold_processes
from crash.cold_restore import restore_a_lost_disk
from crash.compiled_twins import compare_compiled_with_plain
from crash.failing_disk import break_the_disk
from crash.failovers import fail_over
from crash.feature_kills import kill_inside_features
from crash.in_network import run_in_network
from crash.lost_nameservers import lose_all_nameservers
from crash.malformed_frames import send_malformed_frames
from crash.malformed_input import send_malformed_input
from crash.mutated_http2 import send_mutated_http2
from crash.power_loss import cut_the_power
from crash.programme import FirstFailure, ProgrammeRun, Size, scratch_directory
from crash.protocol_ports import attack_protocol_ports
from crash.raft_faults import run_raft_groups
from crash.slow_and_many import be_slow_and_many
from crash.stepped_clock import step_the_clock
from crash.torn_tail import tear_every_tail
from crash.write_order import explore_write_orders

__all__ = ["PROGRAMMES", "Programme", "run_programme"]


class Programme(NamedTuple):
    """What a programme is called and the function that runs it."""

    title: str
    run: Callable[[ProgrammeRun], None]


def _kill_loop(run: ProgrammeRun) -> None:
    # The official client is needed for this programme alone.
    from crash.kill_loop import kill_again_and_again

    kill_again_and_again(run)


def _nexmark(run: ProgrammeRun) -> None:
    # Spark is needed for this programme alone.
    from crash.nexmark_kills import kill_queries

    kill_queries(run)


def _topic_jobs(run: ProgrammeRun) -> None:
    # Spark is needed for this programme alone.
    from crash.topic_kills import kill_topic_jobs

    kill_topic_jobs(run)


def _moved_jobs(run: ProgrammeRun) -> None:
    # Spark is needed for this programme alone.
    from crash.topic_kills import kill_topic_jobs

    kill_topic_jobs(run, "crash.moved_job")


def _rule_jobs(run: ProgrammeRun) -> None:
    # Spark is needed for this programme alone.
    from crash.rules_kills import kill_rule_jobs

    kill_rule_jobs(run)


def _dimension_jobs(run: ProgrammeRun) -> None:
    # Spark is needed for this programme alone.
    from crash.dimension_kills import kill_dimension_jobs

    kill_dimension_jobs(run)


def _sink_jobs(run: ProgrammeRun) -> None:
    # Spark is needed for this programme alone.
    from crash.sink_kills import kill_sink_jobs

    kill_sink_jobs(run)


def _counting_jobs(run: ProgrammeRun) -> None:
    # Spark is needed for this programme alone.
    from crash.hits_kills import kill_counting_jobs

    kill_counting_jobs(run)


def _scaled_jobs(run: ProgrammeRun) -> None:
    # PostgreSQL's and Spark's tests are needed for this programme alone.
    from crash.scaled_jobs import kill_scaled_jobs

    kill_scaled_jobs(run)


def _network(name: str) -> Callable[[ProgrammeRun], None]:
    return lambda run: run_in_network(run, name)


PROGRAMMES = {
    "C1": Programme("raft-faults", run_raft_groups),
    "C2": Programme("cluster-faults", run_clusters),
    "C3": Programme("replica-kills", _network("C3")),
    "C4": Programme("replica-cuts", _network("C4")),
    "C5": Programme("false-replicas", _network("C5")),
    "C6": Programme("failovers", fail_over),
    "S1": Programme("torn-tail", tear_every_tail),
    "S2": Programme("bit-rot", find_every_flip),
    "S3": Programme("write-order", explore_write_orders),
    "S4": Programme("kill-loop", _kill_loop),
    "S5": Programme("feature-kills", kill_inside_features),
    "S6": Programme("power-loss", cut_the_power),
    "S7": Programme("failing-disk", break_the_disk),
    "S8": Programme("nexmark-kills", _nexmark),
    "S9": Programme("topic-kills", _topic_jobs),
    "S10": Programme("rules-kills", _rule_jobs),
    "S11": Programme("dimension-kills", _dimension_jobs),
    "S12": Programme("sink-kills", _sink_jobs),
    "S13": Programme("hits-kills", _counting_jobs),
    "S14": Programme("stepped-clock", step_the_clock),
    "S20": Programme("lost-disks", _moved_jobs),
    "S21": Programme("scaled-jobs", _scaled_jobs),
    "S22": Programme("cold-kills", kill_inside_tiered_storage),
    "S23": Programme("cold-restore", restore_a_lost_disk),
    "S24": Programme("cold-process-kills", kill_cold_processes),
    "N1": Programme("lost-nameservers", lose_all_nameservers),
    "N2": Programme("changing-brokers", change_brokers_under_load),
    "N3": Programme("cut-brokers", _network("N3")),
    "N4": Programme("cut-nameservers", _network("N4")),
    "X1": Programme("malformed-input", send_malformed_input),
    "X2": Programme("slow-and-many", be_slow_and_many),
    "X4": Programme("malformed-frames", send_malformed_frames),
    "X5": Programme("mutated-http2", send_mutated_http2),
    "X6": Programme("compiled-twins", compare_compiled_with_plain),
    "X7": Programme("protocol-ports", attack_protocol_ports),
}


def run_programme(name: str, *, seed: int, size: Size, keep: Path, stops_at_failure: bool = False) -> ProgrammeRun:
    """The finished run of a programme, or the run up to its first failure. Failing directories are copied to `keep`."""
    with scratch_directory() as scratch, suppress(FirstFailure):
        run = ProgrammeRun(seed, size, scratch, keep, stops_at_failure)
        PROGRAMMES[name].run(run)
    return run
