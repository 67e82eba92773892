"""Passes over bound plans, one in each file; no Spark.

`passes.py` lists them all, and says in which order and when each runs. A pass changes what a plan costs and not what it
says, but where a setting asks for that: the time zone, what a bad CAST does, windows of rules.
"""
