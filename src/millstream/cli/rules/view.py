"""`millstream rules`: list rules, show one with its matches and versions, and show how all are evaluated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from millstream.cli.messages.moment import time_text
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value, print_error
from millstream.cli.rules.store import Store
from millstream.streams.errors import RuleError
from millstream.streams.rules.changes import find_rule
from millstream.streams.rules.conditions import predicates_of
from millstream.streams.rules.notes import Notes, QuarantineNote, RuleNotes
from millstream.streams.rules.store import RuleStore

if TYPE_CHECKING:
    from millstream.streams.rules.rule import Rule, RuleStatistics

__all__ = ["explain", "list_rules", "show", "stats", "versions"]


_COLUMNS = ("rule", "title", "level", "kind", "enabled", "statistics", "tags")


def list_rules(
    text: str = "",
    *,
    store: Store,
    level: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    tag: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    kind: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    enabled: Annotated[bool | None, Parameter(name="--enabled", negative="--disabled")] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """List the rules of a store that match all options.

    Parameters
    ----------
    text
        In the id, title or author, upper or lower case.
    store
        The directory of the rules.
    level
        informational, low, medium, high or critical; may be given several times, as the next two.
    tag
        A tag; * and ? stand for any letters.
    kind
        sigma, yaml or sql.
    enabled
        Only those that are enabled; --disabled: those that are not.
    """
    rules = [
        rule
        for rule in RuleStore(store).latest().rules
        if text.lower() in f"{rule.id}\n{rule.title}\n{rule.author}".lower()
        and (not level or rule.level in level)
        and (not kind or rule.kind in kind)
        and (not tag or any(fnmatchcase(one, pattern) for one in rule.tags for pattern in tag))
        and (enabled is None or rule.enabled is enabled)
    ]
    rows = [
        (
            *(rule.id, rule.title, rule.level, rule.kind, rule.enabled),
            None if rule.statistics is None else _statistics_text(rule.statistics),
            " ".join(rule.tags),
        )
        for rule in rules
    ]
    Printer(common.output).listing(_COLUMNS, rows, empty="No rule of the store fits.")
    return ExitCode.DONE


def show(id: str, *, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Show a rule: what its author wrote, its condition as it is evaluated, and what it found.

    Parameters
    ----------
    id
        The rule's id, or its beginning if no other id begins so.
    store
        The directory of the rules.
    """
    rule = find_rule(RuleStore(store).latest(), id)
    notes = RuleNotes(store).read()
    if Printer(common.output).format == "json":
        print(json.dumps(_values(rule, notes), ensure_ascii=False), flush=True)
    else:
        print("\n".join(_lines(rule, notes)), flush=True)
    return ExitCode.DONE


def _values(rule: Rule, notes: Notes) -> dict[str, object]:
    import msgspec

    values: dict[str, object] = {
        field: msgspec.to_builtins(getattr(rule, field)) for field in rule.__struct_fields__ if field != "condition"
    }
    return {
        **values,
        "condition": str(rule.condition),
        "atoms": [str(predicate) for predicate in dict.fromkeys(predicates_of(rule.condition))],
        "hits": sum(one.hits.get(rule.id, 0) for one in notes.worked),
        "quarantined": [msgspec.to_builtins(one) for one in notes.quarantined if one.rule == rule.id],
    }


def _lines(rule: Rule, notes: Notes) -> Iterator[str]:
    from millstream.streams.rules.explain import outline

    summary = (
        ("rule", rule.id),
        ("title", rule.title),
        ("level", rule.level),
        ("kind", rule.kind),
        ("tags", " ".join(rule.tags)),
        ("author", rule.author),
        ("license", rule.license),
        ("enabled", "yes" if rule.enabled else "no"),
        ("alerts", "" if rule.alerts else "no: its events are only counted by other rules"),
        ("shows", " ".join(rule.shows)),
        ("filters", "; ".join(rule.filters)),
        ("counts", _statistics_text(rule.statistics) if rule.statistics else ""),
        ("atoms", f"{len(set(predicates_of(rule.condition))):,}"),
        ("hits", f"{sum(one.hits.get(rule.id, 0) for one in notes.worked):,}" if notes.worked else "no job told any"),
    )
    for name, value in summary:
        if value:
            yield f"{name:<9}{value}"
    for one in notes.quarantined:
        if one.rule == rule.id:
            yield f"{'stopped':<9}{_quarantine_text(one)}"
    yield from ("", "condition", *(f"  {line}" for line in outline(rule.condition)))
    if rule.text:
        yield from ("", "as it was written", *(f"  {line}" for line in rule.text.splitlines()))


def _statistics_text(statistics: RuleStatistics) -> str:
    measure = statistics.measure
    counted = f"{measure.name} of {', '.join(measure.fields)}" if measure.of else measure.name
    parts = f" of {', '.join(statistics.parts)}" if statistics.parts else ""
    by = f" by {', '.join(statistics.by)}" if statistics.by else ""
    return f"{counted}{parts}{by} within {_length(statistics.window_ms)}: {statistics.bounds}"


def _length(length_ms: int) -> str:
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if length_ms % size_ms == 0:
            return f"{length_ms // size_ms} {unit}"
    return f"{length_ms} ms"


def _quarantine_text(note: QuarantineNote) -> str:
    when = f" at {time_text(note.time_ms)}" if note.time_ms else ""
    evidence = f"; {note.evidence}" if note.evidence else ""
    return f"in version {note.version}{when}{f' by {note.job}' if note.job else ''}: {note.reason}{evidence}"


def stats(*, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Show what a store has and what jobs noted of it: matches of each rule, predicates, and rules that were stopped.

    Parameters
    ----------
    store
        The directory of the rules.
    """
    rule_set, notes = RuleStore(store).latest(), RuleNotes(store).read()
    hits: Counter[str] = Counter()
    for work in notes.worked:
        hits.update(work.hits)
    atoms = Counter(
        predicate for rule in rule_set.rules if rule.enabled for predicate in set(predicates_of(rule.condition))
    )
    on = sum(rule.enabled for rule in rule_set.rules)
    stopped = {one.rule: one for one in notes.quarantined}
    printer = Printer(common.output)
    titles = {rule.id: rule.title for rule in rule_set.rules}
    found = [(name, titles.get(name), count) for name, count in hits.most_common() if count]
    totals: dict[str, Value] = {
        "version": rule_set.version,
        "rules": len(rule_set.rules),
        "enabled": on,
        "atoms": len(atoms),
        "shared_atoms": sum(count > 1 for count in atoms.values()),
        "fields": len({predicate.field for predicate in atoms}),
        "events": sum(work.events for work in notes.worked),
        "hits": hits.total(),
    }
    if printer.format == "json":
        import msgspec

        shown = {
            **totals,
            "by_rule": dict(hits.most_common()),
            "jobs": [msgspec.to_builtins(work) for work in notes.worked],
            "quarantined": [msgspec.to_builtins(one) for one in notes.quarantined],
        }
        print(json.dumps(shown, ensure_ascii=False), flush=True)
        return ExitCode.DONE
    printer.listing(tuple(totals), [tuple(totals.values())], empty="")
    if not notes.worked:
        empty = "No job has noted hits so far. Run one: millstream rules run."
    else:
        empty = f"No rule found anything in {totals['events']:,} events."
    print()
    printer.listing(("rule", "title", "hits"), found, empty=empty)
    enabled = {rule.id: rule.enabled for rule in rule_set.rules}
    if stopped:
        print()
        rows = [
            (name, "on again" if enabled.get(name) else "off", _quarantine_text(one)) for name, one in stopped.items()
        ]
        printer.listing(("stopped", "now", "why"), rows, empty="")
    return ExitCode.DONE


def versions(
    *,
    store: Store,
    count: Annotated[int, Parameter(name=["--count", "-n"])] = 20,
    common: CommonOptions = CommonOptions(),
) -> int:
    """List the versions of a store, newest first.

    Parameters
    ----------
    store
        The directory of the rules.
    count
        So many at most.
    """
    rules = RuleStore(store)
    try:
        current = rules.current()
    except RuleError as error:
        if error.name != "RULE_STORE_DAMAGED":
            raise
        print_error(error)
        current = 0
    rows: list[tuple[Value, ...]] = []
    for one in reversed(rules.versions()[-count:]):
        if isinstance(one, RuleError):
            rows.append((None, False, None, None, None, str(one)))
            continue
        rows.append((one.version, one.version == current, time_text(one.time_ms), one.rules, one.enabled, one.why))
    columns = ("version", "counts", "stored", "rules", "enabled", "why")
    Printer(common.output).listing(columns, rows, empty="The store has no versions.")
    return ExitCode.DONE


def explain(*, store: Store, common: CommonOptions = CommonOptions()) -> int:
    """Show how the rules are evaluated together: predicates by field, engines, what is shared, and the cache.

    Takes some seconds for thousands of rules, since all their patterns are compiled.

    Parameters
    ----------
    store
        The directory of the rules.
    """
    import msgspec

    from millstream.streams.rules.stage.stage import RuleStage

    explained = RuleStage(RuleStore(store).latest()).explain()
    remembered = _known_share(RuleNotes(store))
    printer = Printer(common.output)
    if printer.format == "json":
        shown = {**msgspec.to_builtins(explained), "cache_hit_rate": remembered}
        print(json.dumps(shown, ensure_ascii=False), flush=True)
        return ExitCode.DONE
    totals: dict[str, Value] = {
        "rules": explained.rules,
        "atoms": sum(group.atoms for group in explained.groups),
        "shared_atoms": sum(group.shared_atoms for group in explained.groups),
        "classes_by": ", ".join(explained.class_fields) or "none",
        # Unknown until a job has judged something.
        "cache_hit_rate": remembered,
    }
    printer.listing(tuple(totals), [tuple(totals.values())], empty="")
    print()
    rows = [
        (
            group.field or "(whole event)",
            group.atoms,
            group.shared_atoms,
            ", ".join(f"{count} by {name}" for name, count in group.engines.items()),
            group.database_bytes or None,
        )
        for group in explained.groups
    ]
    columns = ("field", "atoms", "shared_atoms", "engines", "database_bytes")
    printer.listing(columns, rows, empty="No rule of the store is enabled.")
    return ExitCode.DONE


def _known_share(notes: RuleNotes) -> float | None:
    """The share of values that jobs had judged before; None where none has judged any."""
    counts: Counter[str] = Counter()
    for work in notes.read().worked:
        counts.update({name: int(value) for name, value in work.more.items() if name.startswith("values_")})
    lookups = counts["values_known"] + counts["values_new"]
    return round(counts["values_known"] / lookups, 3) if lookups else None
