"""`millstream rules`: add, enable, disable, remove and roll back rules of a store."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value, print_usage
from millstream.streams.rules.changes import MergeResult, choose_rules, merge_rules, remove_rules, switch_rules
from millstream.streams.rules.notes import RuleNotes
from millstream.streams.rules.store import RuleStore

if TYPE_CHECKING:
    from millstream.streams.rules.imported_rules import AppliedFilter, ImportedRules, Refusal, SourceNote
    from millstream.streams.rules.rule import RuleSet

__all__ = ["STORE_VARIABLE", "Store", "disable", "enable", "forget", "import_rules", "remove", "rollback"]

STORE_VARIABLE = "MILLSTREAM_RULES"

Store = Annotated[Path, Parameter(name="--store", env_var=STORE_VARIABLE)]

_SHOWN_REFUSALS = 50
_SHOWN_FILTERS = 50
_SHOWN_SOURCES = 10
_SHOWN_FILTERED = 10
"""Rules that are named of one filter."""


def import_rules(
    *paths: Path,
    store: Store,
    mapping: Path | None = None,
    log_source: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    placeholders: Path | None = None,
    unmapped: Literal["nothing", "everything"] = "nothing",
    windows: Literal["tumbling", "sliding"] = "tumbling",
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Import rules into a store: Sigma's, ours in YAML, and SQL statements. A rule that exists already is replaced.

    A rule that cannot be imported is named with file and line, the others are imported: exit code 5, or 1 if none was.
    An empty directory or file beside others is a warning. A rule that was disabled stays so.
    Example: millstream rules import sigma/rules/windows mine.yml --store rules.

    Parameters
    ----------
    paths
        Files, and directories with all files of rules (.yml, .yaml, .sql) below them.
    store
        The directory of the rules; it is created if it is missing. MILLSTREAM_RULES names it, too.
    mapping
        A YAML file that says which events are those of Sigma's log sources, where they hold fields, and what
        placeholders stand for; docs/rules.md describes it.
    log_source
        All events are of this log source, as in product=aws,service=cloudtrail: rules of Sigma for it and for what it
        is part of look at all of them, and rules for others are left out. Several may be given.
    placeholders
        A YAML file with the values of placeholders (Administrators: [root, dba]), for rules with expand.
    unmapped
        Which events the Sigma rules evaluate whose log source no mapping names, ours nor yours: none (the rules are
        left out), or every event that is not a record of a Windows event log.
    windows
        What rules that count look at: tumbling windows lie side by side; a sliding one ends at each event, so that no
        burst falls between two of them. A rule that cannot slide (docs/rules.md) stays as it is.
    dry_run
        Only show what would be done.
    """
    from millstream.streams.optimizer.sliding_windows import slide_windows
    from millstream.streams.rule_formats.rule_files import SigmaEvents, log_source_of, read_rule_files

    if not paths:
        return print_usage("Name files or directories of rules.")
    try:
        log_sources = tuple(log_source_of(one) for one in log_source)
    except ValueError as error:
        return print_usage(f"--log-source takes words such as product=aws,service=cloudtrail, not {str(error)!r}.")
    found = read_rule_files(paths, SigmaEvents(mapping, log_sources, placeholders, unmapped == "everything"))
    if windows == "sliding":
        found = msgspec.structs.replace(found, rules=slide_windows(found.rules))
    rules, done = RuleStore(store), list[MergeResult]()

    def change(before: RuleSet) -> RuleSet:
        done.append(merge_rules(before, found))
        return done[-1].rule_set

    if dry_run:
        from millstream.streams.rules.rule import RuleSet

        change(rules.latest() if rules.exists() else RuleSet(0))
        version = done[-1].rule_set.version
    else:
        version = rules.publish(change, why=_printable(f"import {' '.join(map(str, paths))}")).version
    return _tell_import(done[-1], found, version, dry_run, Printer(common.output))


def _tell_import(done: MergeResult, found: ImportedRules, version: int, dry_run: bool, printer: Printer) -> int:
    accepted = len(done.added) + len(done.changed) + len(done.same)
    counts = {"new": len(done.added), "changed": len(done.changed), "as before": len(done.same)}
    words = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count) or "none"
    noun, verb = "rule" if accepted == 1 else "rules", "would be taken" if dry_run else "taken"
    values: dict[str, Any] = {"version": version, "taken": accepted, "refused": len(done.refused)}
    if printer.format == "json":
        values |= {
            "added": list(done.added),
            "changed": list(done.changed),
            "same": len(done.same),
            "refused": [_printable(str(one)) for one in done.refused],
            "filters": [{**msgspec.to_builtins(one), "path": _printable(one.path)} for one in found.filters],
            "log_sources": [msgspec.to_builtins(one) for one in found.sources],
            "passed_over": [_printable(str(one)) for one in found.passed_over],
        }
    values["rules"] = len(done.rule_set.rules)
    sentence = f"{accepted:,} {noun} {verb}: {words}; version {version} has {len(done.rule_set.rules):,} rules"
    printer.record(values, sentence=sentence)
    _tell_filters(found.filters)
    _tell_sources(found.sources)
    _tell_passed_over(found.passed_over)
    if not done.refused:
        in_vain = bool(found.passed_over) or any(one.unmapped for one in found.sources)
        return ExitCode.REFUSED if in_vain and not accepted else ExitCode.DONE
    print(f"{len(done.refused):,} {'was' if len(done.refused) == 1 else 'were'} refused:", file=sys.stderr)
    for one in done.refused[:_SHOWN_REFUSALS]:
        print(f"  {_printable(str(one))}", file=sys.stderr)
    if len(done.refused) > _SHOWN_REFUSALS:
        print(f"  and {len(done.refused) - _SHOWN_REFUSALS:,} more, which -o json shows", file=sys.stderr)
    return ExitCode.PARTLY_DONE if accepted else ExitCode.REFUSED


def _tell_filters(filters: Sequence[AppliedFilter]) -> None:
    for one in filters[:_SHOWN_FILTERS]:
        print(_printable(one.describe(_SHOWN_FILTERED)), file=sys.stderr)
    if len(filters) > _SHOWN_FILTERS:
        print(f"and {len(filters) - _SHOWN_FILTERS:,} more filters, which -o json shows", file=sys.stderr)


def _tell_passed_over(places: Sequence[Refusal]) -> None:
    for one in places[:_SHOWN_REFUSALS]:
        print(f"warning: {_printable(str(one))}", file=sys.stderr)
    if len(places) > _SHOWN_REFUSALS:
        print(
            f"warning: and {len(places) - _SHOWN_REFUSALS:,} more without rules, which -o json shows", file=sys.stderr
        )


def _tell_sources(sources: Sequence[SourceNote]) -> None:
    for looks_at, unmapped in dict.fromkeys((one.looks_at, one.unmapped) for one in sources):
        some = [one for one in sources if (one.looks_at, one.unmapped) == (looks_at, unmapped)]
        some.sort(key=lambda one: -one.rules)
        count = sum(one.rules for one in some)
        named = ", ".join(f"{one.source} {one.rules:,}" for one in some[:_SHOWN_SOURCES])
        more = f" and {len(some) - _SHOWN_SOURCES:,} more log sources" if len(some) > _SHOWN_SOURCES else ""
        noun, was = ("rule", "was") if count == 1 else ("rules", "were")
        if looks_at:
            does = f"{'looks' if count == 1 else 'look'} at {looks_at}"
        elif unmapped:
            whose = "its" if count == 1 else "their"
            does = f"{was} left out, since no mapping tells which events are of {whose} log source"
        else:
            others = "it is for another log source" if count == 1 else "they are for other log sources"
            does = f"{was} left out, since {others}"
        print(f"{count:,} {noun} {does}: {named}{more}", file=sys.stderr)
    if any(one.unmapped for one in sources):
        print("--mapping or --log-source tells; with --unmapped everything they judge all events.", file=sys.stderr)
    elif any(one.looks_at for one in sources):
        print("--log-source, or a mapping, says which events are of their log sources.", file=sys.stderr)


def _printable(text: str) -> str:
    """The text without what is no character, as names of files may have."""
    return text.encode("utf-8", "replace").decode()


def enable(*ids: str, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Enable rules. Running jobs follow at their next micro-batch.

    Parameters
    ----------
    ids
        Ids of rules; * and ? stand for any letters.
    store
        The directory of the rules.
    """
    return _switch(ids, store, common, enabled=True)


def disable(*ids: str, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Disable rules; they stay in the store, and stay disabled when they are imported again.

    Parameters
    ----------
    ids
        Ids of rules; * and ? stand for any letters.
    store
        The directory of the rules.
    """
    return _switch(ids, store, common, enabled=False)


def _switch(ids: Sequence[str], store: Path, common: CommonOptions, *, enabled: bool) -> int:
    if not ids:
        return print_usage("Name rules by their ids; '*' stands for all.")
    switch = "on" if enabled else "off"
    changed: list[str] = []

    def change(before: RuleSet) -> RuleSet:
        changed[:] = [rule.id for rule in choose_rules(before, ids) if rule.enabled is not enabled]
        return switch_rules(before, {*changed}, enabled=enabled)

    version = _existing(store).publish(change, why=f"switch {switch} {' '.join(ids)}").version
    values: dict[str, Value | Sequence[Value]] = {"version": version, "switched": changed, "enabled": enabled}
    words = f"{_rules(changed)} switched {switch} in version {version}" if changed else f"all were {switch} before"
    Printer(common.output).record(values, sentence=words)
    return ExitCode.DONE


def remove(*ids: str, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Remove rules from a store; older versions keep them.

    Parameters
    ----------
    ids
        Ids of rules; * and ? stand for any letters.
    store
        The directory of the rules.
    """
    if not ids:
        return print_usage("Name rules by their ids; '*' stands for all.")
    gone: list[str] = []

    def change(before: RuleSet) -> RuleSet:
        gone[:] = [rule.id for rule in choose_rules(before, ids)]
        return remove_rules(before, {*gone})

    after = _existing(store).publish(change, why=f"remove {' '.join(ids)}")
    Printer(common.output).record(
        {"version": after.version, "removed": gone, "rules": len(after.rules)},
        sentence=f"{_rules(gone)} removed; version {after.version} has {len(after.rules):,} rules",
    )
    return ExitCode.DONE


def rollback(version: int, *, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Make the rules of an older version current again, as a new version. Repairs a damaged store, too.

    Parameters
    ----------
    version
        Its number: millstream rules versions.
    store
        The directory of the rules.
    """
    after = RuleStore(store).rollback(version)
    Printer(common.output).record(
        {"version": after.version, "as_in": version, "rules": len(after.rules)},
        sentence=f"version {after.version} has the {len(after.rules):,} rules of version {version}",
    )
    return ExitCode.DONE


def forget(before: int, *, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Remove old versions. The newest 100 stay, and all from the oldest one on that a job noted work with.

    Parameters
    ----------
    before
        Versions with smaller numbers are removed.
    store
        The directory of the rules.
    """
    used = [work.version for work in RuleNotes(store).read().worked]
    gone = _existing(store).forget(min([before, *used]))
    Printer(common.output).record(
        {"forgotten": gone},
        sentence=f"{len(gone):,} versions are forgotten" if gone else "no version could go",
    )
    return ExitCode.DONE


def _existing(directory: Path) -> RuleStore:
    """The store, which must hold rules already: a slip in its name must not make one. Raises RULE_STORE_NOT_FOUND."""
    store = RuleStore(directory)
    store.current()
    return store


def _rules(names: Sequence[str]) -> str:
    return f"the rule {names[0]} is" if len(names) == 1 else f"{len(names):,} rules are"
