"""Static topics: logic queues over the physical ones of several brokers, and the face that picks the queue."""
