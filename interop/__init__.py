"""Official clients and a reference broker against the product; see README.md beside this file."""
