"""A cluster of 500 broker sets on paper that runs: the product's registry and controller, without sockets."""
