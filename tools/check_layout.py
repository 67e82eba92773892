"""Reports where the tree breaks its rules of layout; tools/layout_exceptions.toml names what may break them.

The rules: at most 30 files in a folder, no circle of imports, no two packages of the stream engine that import each
other, one public class of a name, and no function that is named by a participle alone. With `--report` it prints
counts; without, each finding, and the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["Layout", "main"]

MAX_FILES: Final = 30  # Modules in one folder, without its `__init__`.

AT_IMPORT, IN_FUNCTION, FOR_TYPES = "with its module", "at a call", "for a type checker"  # When an import runs.

ENGINE: Final = "millstream.streams"
"""The package whose packages, at every depth, may import each other one way only."""

_ROOT: Final = Path(__file__).resolve().parent.parent

Found = list[tuple[str, str]]  # Names that may be exceptions, with what is found of each.


class Layout:
    """The modules of the package at `root`. `exceptions` are the names that each rule lets pass."""

    def __init__(self, root: Path, exceptions: Mapping[str, Sequence[str]]) -> None:
        self._exceptions = exceptions
        self._trees: dict[str, ast.Module] = {}
        self._packages: set[str] = set()
        for file in sorted(root.rglob("*.py")):
            parts = (root.name, *file.relative_to(root).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts = parts[:-1]
                self._packages.add(".".join(parts))
            self._trees[".".join(parts)] = ast.parse(file.read_text(encoding="utf-8"))
        self._imports: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for module, tree in self._trees.items():
            for when, name in _imports_of(tree, AT_IMPORT):
                target = name if name in self._trees else name.rpartition(".")[0]
                if target in self._trees and target != module:
                    self._imports[when][module].add(target)

    def findings(self) -> dict[str, list[str]]:
        """What breaks each rule, a line for each finding; a circle stands under the first rule that sees it."""
        kinds = ((AT_IMPORT,), (AT_IMPORT, IN_FUNCTION), (AT_IMPORT, IN_FUNCTION, FOR_TYPES))
        circles = [self._circles(*some) for some in kinds]
        found = {
            "large folders": self._large_folders(),
            "import circles": circles[0],
            "import circles by imports in functions": [one for one in circles[1] if one not in circles[0]],
            "import circles by TYPE_CHECKING": [one for one in circles[2] if one not in circles[0] + circles[1]],
            "mutual packages": self._mutual_packages(),
            "double class names": self._double_names(),
            "bare participles": self._participles(),
        }
        passed = {rule: self._exceptions.get(rule.replace(" ", "-"), ()) for rule in found}
        return {rule: [": ".join(one) for one in pairs if one[0] not in passed[rule]] for rule, pairs in found.items()}

    def _large_folders(self) -> Found:
        counts = Counter(module.rpartition(".")[0] for module in self._trees if module not in self._packages)
        return [(folder, f"{count} files") for folder, count in sorted(counts.items()) if count > MAX_FILES]

    def _graph(self, *kinds: str) -> dict[str, set[str]]:
        return {module: set().union(*(self._imports[kind][module] for kind in kinds)) for module in self._trees}

    def _circles(self, *kinds: str) -> Found:
        """The groups of modules that reach each other, by the first of each group."""
        graph = self._graph(*kinds)
        reached = {one: _reached_from(one, graph) for one in graph}
        circles = {tuple(sorted(other for other in reached[one] if one in reached[other])) for one in graph}
        return [(circle[0], " ".join(circle[1:])) for circle in sorted(circles) if circle]

    def _mutual_packages(self) -> Found:
        edges: Counter[tuple[str, str]] = Counter()
        for module, targets in self._graph(AT_IMPORT, IN_FUNCTION, FOR_TYPES).items():
            for target in targets:
                ours, theirs = module.split("."), target.split(".")
                depth = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), 0)
                pair = ".".join(ours[: depth + 1]), ".".join(theirs[: depth + 1])
                edges[pair] += pair[0].startswith(f"{ENGINE}.") and self._packages.issuperset(pair)
        both = sorted(pair for pair, count in edges.items() if pair[0] < pair[1] and count and edges[pair[::-1]])
        return [(f"{one} <-> {other}", f"{edges[one, other]}/{edges[other, one]} imports") for one, other in both]

    def _double_names(self) -> Found:
        places: defaultdict[str, list[str]] = defaultdict(list)
        for module, tree in self._trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(module)
        return [(name, " ".join(modules)) for name, modules in sorted(places.items()) if len(modules) > 1]

    def _participles(self) -> Found:
        irregular, found = self._exceptions.get("irregular-participles", ()), []
        for module, tree in self._trees.items():
            for node in ast.walk(tree):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                name, is_property = node.name.strip("_"), "property" in " ".join(map(ast.unparse, node.decorator_list))
                if not is_property and "_" not in name and (name.endswith("ed") or name in irregular):
                    found.append((name, f"{module}:{node.lineno} {node.name}"))
        return found


def _imports_of(node: ast.AST, when: str) -> Iterator[tuple[str, str]]:
    """The full names that are imported below a node; one of `from a import b` may be a module or what is in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((when, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield from ((when, f"{child.module}.{alias.name}") for alias in child.names)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports_of(child, IN_FUNCTION)
        else:
            typed = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            yield from _imports_of(child, FOR_TYPES if typed else when)


def _reached_from(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    reached, left = set[str](), [start]
    while left:
        left += (new := graph[left.pop()] - reached)
        reached |= new
    return reached


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the command line asks for and give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="print counts alone")
    report = parser.parse_args(arguments).report
    exceptions = tomllib.loads((_ROOT / "tools/layout_exceptions.toml").read_text())
    findings = Layout(_ROOT / "src/millstream", exceptions).findings()
    for rule, lines in findings.items():
        print(f"{rule}: {len(lines)}", *(() if report else (f"  {line}" for line in lines)), sep="\n")
    return int(any(findings.values()) and not report)


if __name__ == "__main__":
    sys.exit(main())
