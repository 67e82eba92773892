"""`millstream rules explain`: how the rules of a store are judged together."""

from __future__ import annotations

import json
from collections import Counter

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value
from millstream.cli.rules.store import Store
from millstream.streams.rules.notes import RuleNotes
from millstream.streams.rules.store import RuleStore

__all__ = ["explain"]


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
        told = {**msgspec.to_builtins(explained), "cache_hit_rate": remembered}
        print(json.dumps(told, ensure_ascii=False), flush=True)
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
    asked = counts["values_known"] + counts["values_new"]
    return round(counts["values_known"] / asked, 3) if asked else None
