# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _QUEUE_DIGITS

@cython.locals(
    name=str, judged=dict, records=list, position=Py_ssize_t, body=bytes, rest=tuple, judgement=tuple, text=str,
    properties=dict,
)
cpdef list read_ordinary_sends(list commands, Py_ssize_t start, object topic, object peer)
