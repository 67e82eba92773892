"""The Spark data source `rules`: a topic judged by a store's rules in the source's workers; its rows are the hits."""
