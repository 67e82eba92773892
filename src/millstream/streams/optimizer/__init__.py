"""Rewritings of bound plans that change what they cost and never what they say; no Spark, no Arrow."""
