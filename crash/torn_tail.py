"""S1, the torn tail: every file of a store cut at every byte of its last two entries, with anything behind the cut.

The log loses what was cut and nothing else; every other file is made again as it was or gives way to what is whole.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from crash.derived_files import DerivedKind, kind_of
from crash.ledger import Content, Sent, content_of
from crash.programme import ANY_ERROR, ProgrammeRun
from crash.traced_files import HASTY
from millstream.model.clock import ManualClock
from millstream.store.message_store import MessageStore, StoreOptions

__all__ = ["DOCUMENT_CUTS", "OPTIONS", "filled_store", "tear_every_tail"]

OPTIONS = StoreOptions(segment_bytes=4096, consume_queue_entries=8)

DOCUMENT_CUTS = 40
"""Cuts of a document at CI size, where it is sampled; the log and files of entries are cut at every byte."""

_TOPIC_KEYS = {("orders", 0), ("orders", 1), ("bills", 0)}
_LIGHT_QUEUES = ("%LMQ%mqtt-a", "%LMQ%b")
_LIGHT_BY_TURN = ((), _LIGHT_QUEUES[:1], (), _LIGHT_QUEUES[1:], (), _LIGHT_QUEUES)
"""So that each light queue has as many entries as another queue: a start looks at the last of them alone."""
_KEYS = _TOPIC_KEYS | {(name, 0) for name in _LIGHT_QUEUES}
_CHECKPOINTED = 30
_RECORDS = 42


def _open(directory: Path) -> MessageStore:
    return MessageStore.open(directory, OPTIONS, clock=ManualClock(step_ms=1), files=HASTY)


def filled_store(directory: Path) -> tuple[MessageStore, list[tuple[Sent, int]]]:
    """An open store with records before and behind its last checkpoint, and each with the log offset of its end."""
    store, ends = _open(directory), []
    keys = sorted(_TOPIC_KEYS)
    store.put([Sent("gone", 0, b"deleted").pending()])
    store.write_checkpoint()
    store.delete_topic("gone")
    store.put([Sent("left", 0, b"deleted").pending()])
    store.delete_topic("left")
    for number in range(_RECORDS):
        body = b"%d " % number + b"x" * (number * 37 % 90)
        sent = Sent(*keys[number % len(keys)], body, _LIGHT_BY_TURN[number % 6])
        place = store.put([sent.pending()])[0]
        ends.append((sent, place.log_offset + place.size_bytes))
        if number + 1 == _CHECKPOINTED:
            store.write_checkpoint()
    return store, ends


def _nothing(rest: bytes, _choose: random.Random) -> bytes:
    return b""


def _zeros(rest: bytes, _choose: random.Random) -> bytes:
    return bytes(len(rest))


def _garbage(rest: bytes, choose: random.Random) -> bytes:
    return choose.randbytes(len(rest))


_SPOILERS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "nothing": _nothing, "zeros": _zeros, "garbage": _garbage
}  # fmt: skip


def _content(sent: list[Sent]) -> Content:
    content: Content = {key: (0, []) for key in _KEYS}
    for each in sent:
        for place in each.places:
            content[place][1].append(each.body)
    return content


def tear_every_tail(run: ProgrammeRun) -> None:
    """S1. Every byte of the log's last two records and of each other file's last two entries."""
    store, ends = filled_store(run.scratch / "store")
    crashed = Path(shutil.copytree(run.scratch / "store", run.scratch / "crashed"))
    log_end = store.written_log_offset
    store.close()
    _tear_log(run, crashed, ends, log_end)
    whole = _content([sent for sent, _ in ends])
    for name, source in (("crashed", crashed), ("stopped", run.scratch / "store")):
        reference = _files_after_a_start(run, source)
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            kind = kind_of(path.relative_to(source))
            if kind is not None:
                run.count("files")
                _tear_derived(run, source, path.relative_to(source), kind, whole, reference, name)


def _states(run: ProgrammeRun, content: bytes, cuts: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    for cut in cuts:
        for behind, spoil in _SPOILERS.items():
            yield f"cut at byte {cut}, {behind} behind", content[:cut] + spoil(content[cut:], run.random)


def _tear_log(run: ProgrammeRun, crashed: Path, ends: list[tuple[Sent, int]], log_end: int) -> None:
    path = max((crashed / "commitlog").iterdir())
    start, content = int(path.name), path.read_bytes()
    assert start <= ends[-3][1] < log_end <= start + len(content), "the last two records are in one segment"
    for what, torn in _states(run, content, run.sample(range(ends[-3][1] - start, log_end - start))):
        directory = _copy(run, crashed)
        (directory / path.relative_to(crashed)).write_bytes(torn)
        # Which records are whole: the garbage or zeros may happen to be what was there.
        kept = [sent for sent, end in ends if torn[: end - start] == content[: end - start] or end <= start]
        _check(run, directory, _content(kept), f"log {what}")


def _tear_derived(
    run: ProgrammeRun,
    source: Path,
    name: Path,
    kind: DerivedKind,
    whole: Content,
    reference: dict[str, bytes],
    state: str,
) -> None:
    content = (source / name).read_bytes()
    end = kind.end_of(content)
    cuts: Sequence[int] = range(max(0, end - kind.tail_bytes), end)
    if kind.entry_bytes:
        cuts = run.sample(cuts)
    else:
        cuts = sorted(run.random.sample(cuts, min(len(cuts), run.by_size(DOCUMENT_CUTS, 10**9, 10**9))))
    for what, torn in _states(run, content, cuts):
        directory = _copy(run, source)
        (directory / name).write_bytes(torn)
        label = f"{state}: {name} {what}"
        if _check(run, directory, whole, label) and kind.is_rebuilt_equal:
            found, wanted = directory / name, reference.get(str(name))
            if wanted is None or not found.is_file() or not kind.says_the_same(found.read_bytes(), wanted):
                run.fail(f"{label}: was not made again as it was", directory)


def _copy(run: ProgrammeRun, source: Path) -> Path:
    target = run.scratch / "torn"
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def _check(run: ProgrammeRun, directory: Path, expected: Content, label: str) -> bool:
    """Start over the directory, compare, send one message, stop."""
    run.count("starts")
    try:
        store = _open(directory)
        try:
            content = content_of(store, _KEYS)
            wrong = None if content == expected else f"holds {_lengths(content)} instead of {_lengths(expected)}"
        finally:
            store.close()
    except ANY_ERROR as error:
        wrong = f"{type(error).__name__}: {error}"
    if wrong is not None:
        run.fail(f"{label}: {wrong}", directory)
    return wrong is None


def _lengths(content: Content) -> dict[tuple[str, int], int]:
    return {key: len(bodies) for key, (_, bodies) in sorted(content.items())}


def _files_after_a_start(run: ProgrammeRun, source: Path) -> dict[str, bytes]:
    directory = _copy(run, source)
    _open(directory).close()
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
