"""Requests and answers about messages: sends, pulls, pops, acknowledgements, transactions and offsets."""
