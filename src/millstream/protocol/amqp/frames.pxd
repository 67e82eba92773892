# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

@cython.locals(start=bytes)
cpdef bytes content_frames(object channel, bytes method, bytes properties, bytes body, object frame_max_bytes)

cpdef bytes frame(object kind, object channel, bytes payload)
