"""What a message may do in one broker: be admitted, stored, pulled, popped, acknowledged, redelivered."""
