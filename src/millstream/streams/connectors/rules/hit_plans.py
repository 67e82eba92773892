"""Detects plans that read only rule hits."""

from __future__ import annotations

from millstream.streams.connectors.registry import connector_of
from millstream.streams.plan.nodes import JobPlan, QueryPlan, scans_of_plan

__all__ = ["reads_hits_alone"]


def reads_hits_alone(plan: JobPlan | QueryPlan) -> bool:
    """Whether all that a job or a query reads are hits of rules: few rows leave the workers that judge events."""
    scans = scans_of_plan(plan)
    return bool(scans) and all(connector_of(scan.table.connector).gives_hits for scan in scans)
