# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython


cdef class Allowance:
    cdef double _left, _since_s

    cpdef earn(self, long long count)

    @cython.locals(left=cython.double)
    cpdef bint spend(self, long long count, double now_s) except -1
