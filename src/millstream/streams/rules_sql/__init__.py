"""Conditions of the plan as conditions of rules: what the planner hands to the rule stage."""
