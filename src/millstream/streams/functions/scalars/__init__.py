"""The scalar functions by what they are about, one module each."""
