"""The logical plan: types, expressions and relational nodes, frozen and free of any engine and any parser.

One `Expression` has several evaluators, each where its values are. What they share (comparisons turned round, the form
of constants, logic with NULL) is in `evaluation.py`, and how AND is taken apart in `conditions.py`:

* `spark/expressions.py` with `spark/functions`: as columns of Spark. It stays there: `plan` has no
  pyspark.
* `operators/evaluate.py` with `functions/rowwise.py`: as a Python function of a row, in operators. It stays above
  `functions`, whose tables it reads.
* `rules/from_sql.py`: conditions as formulas of atoms, for sources and rules. It stays with the atoms that it makes.
* `spark/lookups/pair_conditions.py` and `row_filters.py`: over Arrow columns. They stay there: the plan has no pyarrow.
* `databases/conditions.py`: as SQL of a database, of which only what is surely the same is asked. It stays with the
  dialects that it knows.
"""
