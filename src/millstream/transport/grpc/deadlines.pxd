# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef double _TICK_S, _MAX_WAIT_S


cdef class DeadlineTable:
    cdef dict _buckets
    cdef long long _next_tick

    @cython.locals(tick=cython.longlong, bucket=dict)
    cpdef add(self, object entry, double due_s, double now_s)

    @cython.locals(bucket=dict)
    cpdef remove(self, object entry)
