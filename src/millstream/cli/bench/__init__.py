"""`millstream bench`: a load, its endpoint, and its report."""
