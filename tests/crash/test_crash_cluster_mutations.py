"""Bugs planted in replication, elections and routes: the simulated sets of C2 turn red on each."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash.cluster_faults import SimulatedSet

from millstream.broker.queues.offsets import OffsetTable
from millstream.cluster.nameserver import RouteRegistry
from millstream.controller.elections import Elections
from millstream.controller.replica_sets import ReplicaSet
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.replication import FetchAnswer, FetchRequest
from millstream.replication.follower import Follower
from millstream.replication.source import Fetched, LogSource
from millstream.replication.sync_set import SyncSet
from millstream.server.replicas.replicated_broker import ReplicatedBroker
from millstream.store.commit_log import CommitLog
from millstream.store.message_store import MessageStore

pytestmark = pytest.mark.kill

Plant = Callable[[pytest.MonkeyPatch], None]


def _go_on_with_the_old_master(patch: pytest.MonkeyPatch) -> None:
    async def leave_it(replicated: ReplicatedBroker) -> None:
        replicated._following = replicated._follower = None

    patch.setattr(ReplicatedBroker, "_stop_following", leave_it)


def _confirm_what_the_master_alone_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncSet, "_reached_by_all", lambda sync_set: sync_set._own_end)


def _count_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    answer = LogSource.answer

    def answer_and_count(
        source: LogSource, session: int, fetch: FetchRequest, *, is_due: bool = False
    ) -> Fetched | None:
        fetched = answer(source, session, fetch, is_due=is_due)
        if fetched is not None and fetched.body:
            end = fetched.fields.log_offset + len(fetched.body)
            now_s = asyncio.get_running_loop().time()
            source.sync_set.acknowledge(fetch.broker_id, session, end, end, now_s)
            source._log.store.confirm(source.sync_set.confirmed)
        return fetched

    patch.setattr(LogSource, "answer", answer_and_count)


def _elect_outside_the_set(patch: pytest.MonkeyPatch) -> None:
    def choose(elections: Elections, found: ReplicaSet, designated: int | None, now_s: float) -> int | None:
        return elections._choose_from(found, sorted(found.replicas, reverse=True), designated, now_s)

    patch.setattr(Elections, "_choose", choose)


def _show_all_at_replicas(patch: pytest.MonkeyPatch) -> None:
    take = Follower._take_records

    def show(follower: Follower, answer: FetchAnswer, body: bytes) -> None:
        take(follower, answer, body)
        follower._log.store.confirm(follower._log.end)

    patch.setattr(Follower, "_take_records", show)


def _show_all_after_a_start(patch: pytest.MonkeyPatch) -> None:
    attach = MessageStore.open

    def show(*words: Any, **more: Any) -> MessageStore:
        store = attach(*words, **more)
        store.confirm(store.written_log_offset)
        return store

    patch.setattr(MessageStore, "open", show)


def _leave_the_tail_at_a_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "cut", lambda log, log_offset: None)


def _believe_an_older_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RouteRegistry, "compare_epochs", lambda registry, registration, now_s: True)


def _keep_offsets_to_oneself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetTable, "_take_changes", lambda table: [])


def _count_the_lease_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    note_beat = ReplicatedBroker._note_beat

    def note(replicated: ReplicatedBroker, answer: RemotingCommand, _sent_s: float) -> None:
        note_beat(replicated, answer, asyncio.get_running_loop().time())

    patch.setattr(ReplicatedBroker, "_note_beat", note)


_SEEDS = 40
"""Sets that are tried at most until one is red; most bugs need fewer than twenty."""


@pytest.mark.parametrize(
    "plant",
    [
        _go_on_with_the_old_master,
        _confirm_what_the_master_alone_has,
        _count_what_was_sent,
        _elect_outside_the_set,
        _show_all_at_replicas,
        _show_all_after_a_start,
        _leave_the_tail_at_a_cut,
        _believe_an_older_epoch,
        _keep_offsets_to_oneself,
        _count_the_lease_from_the_answer,
    ],
)
def test_a_planted_bug_turns_a_simulated_set_red(plant: Plant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    plant(monkeypatch)
    # In processes of their own: what a bug leaves open ends with them.
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        assert any(pool.apply(_is_red, (tmp_path / f"{seed}", seed)) for seed in range(_SEEDS))


def _is_red(directory: Path, seed: int) -> bool:
    return SimulatedSet(directory, seed).run() is not None
