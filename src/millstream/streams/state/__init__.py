"""What the stream engine keeps in files: whole files, stores of versions, and which version a micro-batch has.

It is the lowest package of the stream engine, and with `dimension` the only one that sees the store's file layer.
"""
