"""`millstream rules`: a store of rules, trials on events, and jobs that run them."""
