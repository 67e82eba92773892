"""The store of rules against a plain model, where its writer may die between any two calls to the system.

The disk is a cruel one: what a file was given and not synced is cut, and a rename whose directory was not synced may be
undone. What was published before stays whole, and the change that was under way is there or is not.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from crash.file_twins import Died, HastyFiles, MortalFiles
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from rule_samples import rule_named, with_rules

from example_counts import scaled
from millstream.streams.errors import RuleError
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.store import RuleSetHead, RuleStore

RULES = st.lists(st.builds(rule_named, st.sampled_from("abc"), st.sampled_from("xyz")), unique_by=lambda one: one.id)


class RuleStoreMachine(RuleBasedStateMachine):
    """`sets` is the model: every version that was published, `current` the number of the one that counts."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="millstream-test-", dir=memory if memory.is_dir() else None))
        self.store = RuleStore(self.root / "rules", files=HastyFiles(), lock_wait_s=0)
        self.sets: dict[int, RuleSet] = {}
        self.current = 0
        self.contents: dict[Path, bytes] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @property
    def counting(self) -> tuple[object, ...]:
        return self.sets[self.current].rules if self.current else ()

    def _note(self, published: RuleSet) -> None:
        assert published.version >= self.current
        if published.version != self.current:
            assert published.version not in self.sets
        self.sets[published.version] = published
        self.current = published.version

    @rule(rules=RULES)
    def publish(self, rules: list[object]) -> None:
        before = (self.current, self.counting)
        published = self.store.publish(with_rules(*rules))  # type: ignore[arg-type]  # rules
        assert published.rules == tuple(rules)
        assert (published.version == self.current) == (before[0] != 0 and before[1] == tuple(rules))
        self._note(published)

    @rule(rules=RULES, life=st.integers(1, 16), undone=st.booleans())
    def die_while_publishing(self, rules: list[object], life: int, undone: bool) -> None:
        mortal = RuleStore(self.root / "rules", files=MortalFiles(life, undone))
        try:
            self._note(mortal.publish(with_rules(*rules)))  # type: ignore[arg-type]  # rules
            return
        except Died:
            pass
        if not self.store.exists():
            assert self.current == 0
            return
        seen = self.store.latest()
        if seen.version != self.current:
            assert seen.version > max(self.sets, default=0)
            assert seen.rules == tuple(rules)
            self._note(seen)

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        if self.sets:
            wanted = data.draw(st.sampled_from(sorted(self.sets)))
            published = self.store.rollback(wanted)
            assert published.rules == self.sets[wanted].rules
            self._note(published)

    @invariant()
    def a_reader_sees_what_was_published(self) -> None:
        if not self.current:
            assert not self.store.exists()
            return
        assert self.store.current() == self.current
        for number, published in self.sets.items():
            assert self.store.load(number) == published
        assert not [one for one in self.store.versions() if not isinstance(one, RuleSetHead)]

    @invariant()
    def a_version_never_changes(self) -> None:
        for path in self.root.glob("rules/versions/*.rules"):
            assert self.contents.setdefault(path, path.read_bytes()) == path.read_bytes()

    @invariant()
    def a_version_that_nobody_published_is_whole_or_not_there(self) -> None:
        for number in range(1, max(self.sets, default=0) + 3):
            assert number in self.sets or not self._trouble(number)

    def _trouble(self, number: int) -> str:
        try:
            self.store.load(number)
        except RuleError as refused:
            return "" if refused.name.endswith("_NOT_FOUND") else refused.name
        return ""


TestRuleStore = RuleStoreMachine.TestCase
TestRuleStore.settings = settings(
    max_examples=scaled(60), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
