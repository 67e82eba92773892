"""The process of its own that does a broker's cold work, so that the broker's interpreter is free for other things."""
