# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef long long _KEPT_BITS
cdef tuple _ENDS, _LOWEST_FIRST

@cython.locals(low=bytes, middle=bytes, high=bytes)
cpdef bytes checksum_property(long long crc)
