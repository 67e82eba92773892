"""Elasticsearch and OpenSearch: the HTTP interface that both have, documents by their ids, and queries in slices."""
