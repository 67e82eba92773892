"""HTTP: requests that are repeated where that helps, and the sink that sends rows by them."""
