# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef dict _UNITS_S
cdef Py_ssize_t _MAX_TIMEOUT_DIGITS

@cython.locals(digits=str)
cpdef parse_timeout_s(str text)
