# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.grpc.wire cimport bytes_field, encode_varint

cdef Py_ssize_t _FIXED_BYTES, _CHECKSUM_BYTES, _DIGEST_BYTES
cdef int _END_OF_VALUE, _HIDDEN, _ID, _HOST, _TAG_NAME, _KEY_NAMES, _OTHER
cdef dict _PARTS
cdef bytes _PLAIN_AND_BORN

cpdef bytes md5_text(bytes body)


cdef class MessageEncoder:
    cdef bytes _host_text, _topic
    cdef object _host, _space

    @cython.locals(text=bytes, message=bytes, receipt=bytes)
    cpdef bytes frame(self, object popped, bytes body=*)

    @cython.locals(
        held=dict, message_id=bytes, born_host=bytes, store_host=bytes, queue_id=object, is_bare=bint, is_plain=bint, system=bytes, user=bytes,
    )
    cpdef bytes message(
        self, object stored, long long delivery_attempt=*, bytes receipt=*, bytes invisible=*, bytes body=*
    )

    @cython.locals(held=dict, written=bytes)
    cdef bytes _rare(self, object stored)

cdef list _user_properties(dict held)

cdef bytes _tag_and_keys(object stored)

cdef bytes _due_time(dict held)


cdef class RunEncoder:
    cdef bytes _name, _topic, _message_id, _born_host, _sorting, _own
    cdef bytes _born, _named_host, _born_field, _store, _store_field
    cdef str _broker_name

    @cython.locals(
        name=bytes, topic=bytes, receipt=str, place_head=bytes, end_of_system=bytes, last_times=bytes, last_host=bytes, times=bytes,
        last_id_bytes=Py_ssize_t, last_receipt_bytes=Py_ssize_t, last_system_bytes=Py_ssize_t,
        last_message_bytes=Py_ssize_t, last_body_bytes=Py_ssize_t, id_head=bytes, receipt_head=bytes, system_head=bytes,
        message_head=bytes, body_head=bytes, parts=list, start=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t,
        checked=Py_ssize_t, body_start=Py_ssize_t, body_end=cython.longlong, body_bytes=cython.longlong,
        system_flag=cython.longlong, magic=cython.longlong, own_times=bytes, topic_end=cython.longlong, text_start=cython.longlong,
        message_id=bytes, host=bytes, handle=bytes, body=bytes, place=bytes, sorting=bytes,
        system_bytes=Py_ssize_t, user=bytes, message_bytes=Py_ssize_t, head=bytes, offset=cython.longlong,
        log_offset=cython.longlong, all_body_bytes=cython.longlong,
    )
    cpdef tuple encode(
        self, bytes data, list places, object queue_id, long long queue_offset, object pop_time_ms, object invisible_ms
    )

    @cython.locals(born=bytes, store=bytes)
    cdef bytes _encode_times(self, bytes times, bytes named_host)

    @cython.locals(
        message_id=bytes, host=bytes, tag_text=bytes, keys=bytes, own=dict, pair=bytes, name=bytes, mark=bytes,
        value=bytes, part=object,
    )
    cdef bint _read_properties(self, bytes text) except -1

cdef bint _is_text(bytes text)

cdef bytes _encode_sorting(bytes tag_text, bytes keys)

cdef bytes _encode_own(dict own)
