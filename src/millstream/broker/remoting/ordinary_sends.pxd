# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _MAX_BODY_BYTES, _MAX_NAMES_CHARACTERS, _QUEUE_DIGITS

@cython.locals(
    name=str, judged=dict, records=list, position=Py_ssize_t, ext=dict, body=bytes, rest=tuple, last=tuple,
    judgement=tuple, text=str, properties=dict, stored=bytes,
)
cpdef list read_ordinary_sends(list commands, Py_ssize_t start, object topic, object peer)

@cython.locals(held=dict, names=tuple, pair=str, is_known=bint)
cpdef dict read_properties(str text)

@cython.locals(tag=str, keys=str)
cdef bint _has_odd_name(dict held) except -1

@cython.locals(size=Py_ssize_t, name=str, value=str)
cdef bytes _stored_text(str text, dict held)
