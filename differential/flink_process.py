"""Runs in an interpreter with PyFlink: takes lists of cases as JSON lines, answers with the changes of each.

    line in: {"cases": [{"tables": [{"ddl": SQL, "path": PATH, "text": ROWS}], "views": [[NAME, SELECT]],
             "columns": [NAME]}]}
    answer:  {"answers": [{"changes": [["+" or "-", [TEXT or null]]], "appends": BOOL, "plan": TEXT}
             or {"refused": TEXT} or {"failed": TEXT}]}

All cases of a line are one job. Where it fails each runs by itself. Nothing of this project is imported here.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, ExplainDetail, TableEnvironment

SETTINGS = {
    "parallelism.default": "1",
    "execution.runtime-mode": "streaming",
    # A watermark behind each row, not one for all rows of 200 ms: what is late is the same in each run.
    "pipeline.auto-watermark-interval": "0 ms",
    "table.local-time-zone": "UTC",
    "table.exec.source.idle-timeout": "0 ms",
    "taskmanager.memory.network.fraction": "0.3",
    "restart-strategy.type": "none",
    "rest.bind-port": "0",
}


def environment() -> Any:
    """A table environment of a small cluster in this process's JVM."""
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    return TableEnvironment.create(settings)


class Session:
    """One environment; cases come and go in databases of their own."""

    def __init__(self) -> None:
        self._environment = environment()
        self._number = 0
        self._directory = Path(tempfile.mkdtemp(prefix="flink-differential-"))

    def answers(self, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What Flink says of each."""
        prepared = [self._prepare(case) for case in cases]
        good = [one for one in prepared if "refused" not in one]
        if good:
            failure = self._run(good)
            if failure is not None:
                for one in good:
                    alone = failure if len(good) == 1 else self._run([one])
                    if alone is not None:
                        one["failed"] = alone
        return [self._answer(one) for one in prepared]

    def _prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        name, directory = f"d{self._number}", self._directory / str(self._number)
        directory.mkdir()
        run = self._environment.execute_sql
        run(f"CREATE DATABASE {name}")
        run(f"USE {name}")
        try:
            for table in case["tables"]:
                path = directory / table["name"]
                path.mkdir()
                (path / "rows.json").write_text(table["text"])
                options = f"'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = '{table['format']}'"
                run(table["ddl"].replace("%OPTIONS%", options))
            for view, select in case["views"]:
                run(f"CREATE VIEW {view} AS {select}")
            texts = ", ".join(f"`{column}` STRING" for column in case["columns"])
            run(
                f"CREATE TABLE sink ({texts}) WITH ('connector' = 'filesystem', 'path' = 'file://{directory}/sink',"
                " 'format' = 'debezium-json')"
            )
            casts = ", ".join(f"CAST(`{column}` AS STRING)" for column in case["columns"])
            insert = f"INSERT INTO {name}.sink SELECT {casts} FROM {name}.{case['views'][-1][0]}"
            plan = self._environment.explain_sql(insert, ExplainDetail.CHANGELOG_MODE)
        except Exception as refused:  # noqa: BLE001 - whatever Py4J makes of an error of the planner
            return {"refused": _reason(refused), "name": name}
        physical = plan.split("== Optimized Physical Plan ==")[1].split("== Optimized Execution Plan ==")[0].strip()
        changes = next(line for line in physical.splitlines()[1:] if "changelogMode" in line)
        return {
            "insert": insert,
            "sink": directory / "sink",
            "appends": "changelogMode=[I]" in changes,
            "plan": physical,
            "name": name,
        }

    def _run(self, prepared: list[dict[str, Any]]) -> str | None:
        """Run the inserts as one job; why it failed."""
        for one in prepared:
            shutil.rmtree(one["sink"], ignore_errors=True)
        try:
            together = self._environment.create_statement_set()
            for one in prepared:
                together.add_insert_sql(one["insert"])
            together.execute().wait()
        except Exception as failed:  # noqa: BLE001 - whatever Py4J makes of an error of the job
            return _reason(failed)
        return None

    def _answer(self, one: dict[str, Any]) -> dict[str, Any]:
        self._environment.execute_sql("USE default_database")
        self._environment.execute_sql(f"DROP DATABASE {one['name']} CASCADE")
        for key in ("refused", "failed"):
            if key in one:
                return {key: one[key]}
        changes: list[Any] = []
        for file in sorted(one["sink"].glob("*")) if one["sink"].exists() else []:
            for line in file.read_text().splitlines():
                told = json.loads(line)
                row = told["before"] if told["op"] == "d" else told["after"]
                changes.append(["-" if told["op"] == "d" else "+", list(row.values())])
        shutil.rmtree(one["sink"].parent, ignore_errors=True)
        return {"changes": changes, "appends": one["appends"], "plan": one["plan"]}


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else next(iter(lines), repr(error)))[:400]


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = Session()
    answers.write('{"ready": true}\n')
    answers.flush()
    for line in sys.stdin:
        told = json.loads(line)
        answers.write(json.dumps({"answers": session.answers(told["cases"])}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
