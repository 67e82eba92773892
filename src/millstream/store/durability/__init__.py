"""What of a store is on the disk: flush marks, checkpoints, and whether a reader may see a record yet."""
