"""The ingestion gateway: files, syslog and HTTP posts become messages of a topic, and nothing is lost on the way.

An input makes batches of events; a `TopicWriter` brings them to the topic, and bounds what waits. `Gateway` runs them.
"""
