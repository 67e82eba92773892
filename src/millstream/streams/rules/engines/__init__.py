"""What finds the true atoms of values: one engine for each kind of atom, all of them over distinct values."""
