"""Findings about replica sets: what would be lost or unavailable after one more failure. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.cli.servers.finding import Finding, Severity
from millstream.client.replica_operations import ControllerStatus, SetStatus
from millstream.protocol.remoting.administration.broker_report import SetReport

__all__ = ["of_controllers", "of_set"]


def of_controllers(looks: Sequence[ControllerStatus]) -> list[Finding]:
    """Whether each answers, one of them leads, and another one could."""
    if not looks:
        return []
    found = [_of_silent(look) for look in looks if look.failure is not None]
    leaders = sorted({look.leader for look in looks if look.leader is not None})
    answering = len(looks) - len(found)
    if answering and not leaders:
        remedy = f"Start them: more than half of {len(looks)} must live. Until then no master can be replaced."
        found.append(Finding("controllers", Severity.PROBLEM, "no leader", remedy))
    elif len(looks) == 1 and answering:
        words = "one controller alone: while it is down, no master is replaced and no set is changed"
        found.append(Finding("controllers", Severity.WARNING, words, "Run three of them: see docs/replicas.md."))
    elif answering:
        words = f"{answering} of {len(looks)} answer; {leaders[0]} leads"
        found.append(Finding("controllers", Severity.OK, words))
    return found


def of_set(found: SetStatus) -> list[Finding]:
    """How the set of one broker is. One that is well has one row."""
    subject = f"broker {found.name}: set"
    if found.master_id is None:
        words = f"no master; the last set is {found.members} of epoch {found.epoch}"
        return [Finding(subject, Severity.PROBLEM, words, "Start a replica of that set; another one is not elected.")]
    risks = [*_of_members(found, subject), *_of_absent(found, subject), *_of_policy(found.report, found, subject)]
    words = f"master {found.master_id} of epoch {found.epoch}, set {found.members}"
    return [Finding(subject, Severity.OK, words), *risks]


def _of_silent(look: ControllerStatus) -> Finding:
    assert look.failure is not None
    remedy = "Start it: millstream start controller, or a nameserver with controller.enabled."
    return Finding(f"controller {look.address}", Severity.PROBLEM, look.failure.message, remedy)


def _of_members(found: SetStatus, subject: str) -> Iterator[Finding]:
    report = found.report
    if report is not None and not report.takes_writes:
        words = f"takes no messages: the set has {len(found.members)} members, min_in_sync demands {report.min_in_sync}"
        yield Finding(subject, Severity.PROBLEM, words, "Start the other replicas, or lower replicas.min_in_sync.")
    if len(found.members) == 1:
        words = f"set of 1: the disk of replica {found.master_id} is the only copy of what it acknowledges"
        yield Finding(subject, Severity.WARNING, words, "Start other replicas, with its name and controllers.")


def _of_absent(found: SetStatus, subject: str) -> Iterator[Finding]:
    for replica in found.replicas:
        at = f"replica {replica.broker_id} at {replica.address}"
        if replica.damaged_bytes:
            words = f"{at} has {replica.damaged_bytes:,} damaged bytes in its log"
            remedy = "They are fetched from the others by themselves; if it goes on, none has them: check the disk."
            yield Finding(subject, Severity.WARNING, words, remedy)
        behind = "" if replica.behind_bytes is None else f", {replica.behind_bytes:,} bytes behind"
        if replica.is_alive is False and not replica.is_master:
            remedy = f"Start it; one that is gone for good: mqadmin cleanBrokerMetadata -bn {found.name}."
            yield Finding(subject, Severity.WARNING, f"{at} is dead", remedy)
        elif not replica.in_set:
            remedy = "It joins once it has everything; if it does not, its log says why."
            yield Finding(subject, Severity.WARNING, f"{at} is not in the set{behind}", remedy)


def _of_policy(report: SetReport | None, found: SetStatus, subject: str) -> Iterator[Finding]:
    if report is None:
        return
    if not report.all_in_set:
        words = f"a message counts with {report.in_sync_replicas} copies, whatever the set (all_in_set is off)"
        yield Finding(subject, Severity.WARNING, words, "Set replicas.all_in_set: a failover loses nothing then.")
    if report.min_in_sync == 1 and len(found.replicas) > 1:
        words = "min_in_sync 1: the last member goes on alone, and its disk is the only copy then"
        remedy = "With three replicas set replicas.min_in_sync to 2; with two it would stop at the loss of one."
        yield Finding(subject, Severity.WARNING, words, remedy)
