# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.record_encoder cimport PlainRecord
from millstream.protocol.remoting.request_shape cimport ShapedRun
from millstream.protocol.remoting.send_shape cimport SendShape, SentRecord

cdef Py_ssize_t _MAX_BODY_BYTES, _MAX_GATHERED_MESSAGES, _MAX_NAMES_CHARACTERS, _MAX_TEXT_BYTES, _QUEUE_DIGITS

@cython.locals(
    name=str, judged=dict, records=list, position=Py_ssize_t, ext=dict, body=bytes, rest=tuple, last=tuple,
    judgement=tuple, text=str, properties=dict, stored=bytes,
)
cpdef list read_ordinary_sends(list commands, Py_ssize_t start, object topic, object peer)

@cython.locals(
    shape=SendShape, sent=list, record=SentRecord, judgement=tuple, system_flag=cython.longlong,
    queues=cython.longlong, count=Py_ssize_t, size=Py_ssize_t, text_bytes=Py_ssize_t,
)
cpdef list accept_run(ShapedRun run, object topic, object peer)

cdef tuple _rest_of(dict ext)

@cython.locals(held=dict, names=tuple, pair=str, is_known=bint)
cpdef dict read_properties(str text)

cdef bint _are_known(tuple names, PlainRecord sample) except -1

@cython.locals(tag=str, keys=str)
cdef bint _has_odd_name(dict held) except -1

@cython.locals(size=Py_ssize_t, name=str, value=str)
cdef bytes _stored_text(str text, dict held)
