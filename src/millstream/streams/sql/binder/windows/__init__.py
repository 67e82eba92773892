"""Windows bound: table functions, OVER, times that bound a join, and watermarks."""
