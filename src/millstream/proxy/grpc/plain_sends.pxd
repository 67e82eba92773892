# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.record_encoder cimport PlainRecord
from millstream.proxy.grpc.plain_caller cimport PlainCaller
from millstream.transport.grpc.call cimport ServerCall

cdef Py_ssize_t _ENTRY_BYTES, _MAX_BODY_BYTES, _MAX_TEXT_BYTES
cdef bytes _BEFORE_ENTRY, _BEFORE_ID, _BEFORE_SECOND_ID, _OFFSET


cdef class PlainSends:
    cdef object _adapter, _delivery, _clock
    cdef PlainCaller _caller

    @cython.locals(
        taken=list, records=list, position=Py_ssize_t, call=ServerCall, sent=tuple, name=str, held=dict, body=bytes,
        born_ms=object, encoding=Py_ssize_t, user_properties=object, topic_name=str, stored=bytes,
        record=PlainRecord, turn=cython.longlong, queues=cython.longlong,
    )
    cpdef Py_ssize_t take(self, list calls, Py_ssize_t start) except -1

    @cython.locals(number=Py_ssize_t, record=PlainRecord, call=ServerCall)
    cpdef _answer(self, list calls, list records, object arrived_s, object _places, object error)

@cython.locals(message_id=bytes, size=bytes, offset=bytes, entry_bytes=Py_ssize_t)
cpdef bytes plain_receipt(str name, object queue_offset)

@cython.locals(stored=bytes, tag=str, keys=str)
cdef bytes _stored_text(dict held, Py_ssize_t user_properties)
