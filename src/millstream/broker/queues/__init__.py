"""Topics and groups, their queues and offsets, ledgers of deliveries, reading and waiting."""
