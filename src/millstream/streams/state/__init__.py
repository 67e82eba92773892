"""What the stream engine keeps in files and in workers: whole files, versions, the version of a micro-batch, caches.

Spools take what workers leave for the driver. It is the lowest package of the stream engine. With `dimension`, which
writes the parts of its tables, it is the only one that uses the store's file layer; the stores of rules and models hand
one on.
"""
