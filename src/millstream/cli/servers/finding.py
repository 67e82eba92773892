"""A finding of `millstream doctor`: its state, its text and its remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from typing import Final

from millstream.client.cluster_operations import BrokerStatus, NameserverStatus
from millstream.protocol.remoting.administration.broker_report import BrokerReport
from millstream.transport.descriptor_budget import reserved_descriptors

__all__ = [
    "MAX_CLOCK_SKEW_MS",
    "MIN_DESCRIPTORS",
    "MIN_FREE_BYTES",
    "MIN_FREE_RATIO",
    "SCARCE_DESCRIPTORS_RATIO",
    "SLOW_SYNC_MS",
    "Finding",
    "Severity",
    "of_broker",
    "of_nameservers",
    "of_versions",
]

MAX_CLOCK_SKEW_MS: Final = 1_000.0
"""Milliseconds that two clocks may differ: delays, invisible times and windows of streams go by them."""

MIN_FREE_BYTES: Final = 16 * 2**30
MIN_FREE_RATIO: Final = 0.15
"""A disk with less room than both is scarce: the broker begins to remove its oldest messages."""

SLOW_SYNC_MS: Final = 50.0
"""A sync that takes longer is slow for a broker that acknowledges after it."""


MIN_DESCRIPTORS: Final = 4_096
"""With fewer descriptors a broker serves few connections: half of them are kept for its files."""

SCARCE_DESCRIPTORS_RATIO: Final = 0.8
"""Share of what connections may take that makes descriptors scarce once so many are in use."""


class Severity(Enum):
    """How a thing is. A warning can wait, a problem cannot."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the check-up."""

    subject: str
    state: Severity
    words: str
    remedy: str = ""


def of_nameservers(looks: Sequence[NameserverStatus]) -> list[Finding]:
    """Whether each answers, and whether all know the same brokers."""
    found = []
    answering = [look for look in looks if look.failure is None]
    for look in looks:
        subject = f"nameserver {look.address}"
        if look.failure is not None:
            remedy = "Start it: millstream start nameserver, or name another one with --nameserver."
            found.append(Finding(subject, Severity.PROBLEM, look.failure.message, remedy))
        else:
            words = f"answers in {look.answer_ms:.0f} ms and knows {len(look.brokers)} brokers"
            found.append(Finding(subject, Severity.OK, words))
    everything = {place for look in answering for place in look.brokers}
    for look in answering:
        missing = sorted({place.name for place in everything - set(look.brokers)})
        if missing:
            words = f"does not know {', '.join(missing)}, which another nameserver knows"
            remedy = "Name all nameservers in each broker's setting nameservers; a new one hears of all within 30 s."
            found.append(Finding(f"nameserver {look.address}", Severity.WARNING, words, remedy))
    if answering and not everything:
        words = "no broker is registered"
        found.append(Finding("brokers", Severity.PROBLEM, words, "Start one: millstream start broker."))
    return found


def of_broker(look: BrokerStatus, *, asked_from_afar: bool) -> list[Finding]:
    """How one broker is; `asked_from_afar` says that its nameserver was reached by another address than loopback."""
    subject = f"broker {look.broker.name}"
    found = []
    if asked_from_afar and _is_loopback(look.broker.address):
        words = f"is announced as {look.broker.address}, which other machines cannot reach"
        remedy = "Set advertised_host (--advertised-host) to an address that clients reach, and restart it."
        found.append(Finding(subject, Severity.PROBLEM, words, remedy))
    report = look.report
    if report is None:
        return [*found, _of_silent(look, subject)]
    found.append(Finding(subject, Severity.OK, f"answers at {look.broker.address} in {_answer_ms(look):.0f} ms"))
    if report.failure is not None:
        found.append(Finding(subject, Severity.PROBLEM, report.failure, "Look at the disk, then restart the broker."))
    if report.is_drained:
        remedy = f"Stop it once it is empty, or: millstream broker undrain {look.broker.name}."
        found.append(Finding(subject, Severity.WARNING, "is drained and takes no new messages", remedy))
    found += [*_of_clock(look, subject), *_of_disk(report, subject), *_of_sync(report, subject)]
    return [*found, *_of_descriptors(report, subject), *_of_objects(report, subject)]


def of_versions(own: str, looks: Iterable[BrokerStatus]) -> list[Finding]:
    """Whether all brokers and this command are of one version."""
    versions = {look.report.version for look in looks if look.report is not None}
    if versions <= {own}:
        return [Finding("versions", Severity.OK, f"all are of {own}")]
    words = f"brokers are of {', '.join(sorted(versions))}, this command is of {own}"
    return [Finding("versions", Severity.WARNING, words, "Bring all to one version.")]


def _of_silent(look: BrokerStatus, subject: str) -> Finding:
    failure = look.failure
    if failure is None or failure.name == "REQUEST_NOT_SUPPORTED":
        return Finding(subject, Severity.UNKNOWN, "answers and is no Millstream broker of this version")
    remedy = "See whether it runs; if it does, whether its announced address and port can be reached from here."
    return Finding(subject, Severity.PROBLEM, failure.message, remedy)


def _answer_ms(look: BrokerStatus) -> float:
    """Without what the disk took."""
    return look.answer_ms - ((look.report.sync_ms or 0.0) if look.report else 0.0)


def _of_clock(look: BrokerStatus, subject: str) -> list[Finding]:
    ahead_ms, doubt_ms = look.clock_ahead_ms, _answer_ms(look) / 2
    if ahead_ms is None:
        return []
    if abs(ahead_ms) <= MAX_CLOCK_SKEW_MS + doubt_ms:
        return [Finding(f"{subject}: clock", Severity.OK, f"within {abs(ahead_ms) + doubt_ms:.0f} ms of ours")]
    words = f"its clock is {abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} this machine's"
    remedy = "Let both keep time by NTP (chrony, systemd-timesyncd)."
    return [Finding(f"{subject}: clock", Severity.PROBLEM, words, remedy)]


def _of_disk(report: BrokerReport, subject: str) -> list[Finding]:
    subject = f"{subject}: disk"
    free, whole = report.disk_free_bytes, report.disk_bytes
    words = f"{free / 2**30:,.1f} of {whole / 2**30:,.1f} GiB are free"
    if report.is_disk_full:
        remedy = "Free space, or shorten store.retention_hours; messages are refused until there is room."
        return [Finding(subject, Severity.PROBLEM, f"it is full: {words}", remedy)]
    if free < MIN_FREE_BYTES and free < MIN_FREE_RATIO * whole:
        remedy = "Free space: the broker removes its oldest messages meanwhile, whatever their age."
        return [Finding(subject, Severity.WARNING, words, remedy)]
    return [Finding(subject, Severity.OK, words)]


def _of_sync(report: BrokerReport, subject: str) -> list[Finding]:
    subject = f"{subject}: sync"
    if report.sync_ms is None:
        remedy = "Look at the disk and its permissions."
        return [Finding(subject, Severity.PROBLEM, "its data directory took no small file", remedy)]
    words = f"a small write is on disk in {report.sync_ms:.1f} ms"
    if report.sync_ms <= SLOW_SYNC_MS:
        return [Finding(subject, Severity.OK, words)]
    remedy = "Use a faster disk for the data directory, or leave others off it."
    words += ", and each send waits for one" if report.sync_flush else ""
    return [Finding(subject, Severity.WARNING, words, remedy)]


def _of_descriptors(report: BrokerReport, subject: str) -> list[Finding]:
    subject = f"{subject}: descriptors"
    limit, used = report.descriptor_limit, report.descriptors_in_use
    if limit is None or used is None:
        return []
    room = limit - reserved_descriptors(limit)
    words = f"{used:,} of {limit:,} are in use, {room:,} may be connections"
    remedy = "Raise the hard limit (ulimit -Hn, LimitNOFILE of systemd, --ulimit nofile of a container) and restart it."
    if used > room:
        return [Finding(subject, Severity.PROBLEM, f"they run out: {words}", f"Close connections. {remedy}")]
    if used > SCARCE_DESCRIPTORS_RATIO * room or limit < MIN_DESCRIPTORS:
        return [Finding(subject, Severity.WARNING, words, remedy)]
    return [Finding(subject, Severity.OK, words)]


def _of_objects(report: BrokerReport, subject: str) -> list[Finding]:
    subject, cold = f"{subject}: object store", report.cold
    if cold is None:
        return []
    if cold.last_error:
        remedy = "Messages stay on the disk meanwhile, however old they are: see that it does not run full."
        return [Finding(subject, Severity.PROBLEM, cold.last_error, remedy)]
    words = f"{cold.bytes / 2**30:,.1f} GiB in {cold.objects:,} objects"
    if cold.probe_ms is not None:
        words += f"; a small object is put, read and deleted in {cold.probe_ms:.0f} ms"
    if cold.damaged:
        remedy = "Put damaged objects back from a copy of the bucket, and find out who changes them."
        return [Finding(subject, Severity.PROBLEM, f"{cold.damaged:,} reads met damaged objects; {words}", remedy)]
    if not cold.keeps_what_is_there:
        remedy = "Let no other cluster write below the same prefix: this store would not refuse it."
        return [Finding(subject, Severity.WARNING, f"it replaces objects that are to be kept; {words}", remedy)]
    return [Finding(subject, Severity.OK, words)]


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
