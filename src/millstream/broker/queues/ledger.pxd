# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _HEAP_SLACK


cdef class Ledger:
    cdef public object cursor, capacity, floor_ms
    cdef public bint changed
    cdef public dict _in_flight
    cdef public list _hidden, _ready
    cdef public Py_ssize_t _due_count

    @cython.locals(hidden=list, ready=list)
    cpdef peek_due(self, object now_ms)

    @cython.locals(hidden=list)
    cpdef _next_hidden_ms(self)

    cpdef redeliver(self, object delivery, object now_ms, object invisible_ms)

    cpdef deliver(self, object queue_offset, object now_ms, object invisible_ms)

    @cython.locals(in_flight=dict, hidden=list, offset=cython.longlong)
    cpdef deliver_run(self, long long queue_offset, Py_ssize_t count, object now_ms, object invisible_ms)

    cpdef pop_time_ms(self, object now_ms)

    cpdef _enter(self, object delivery)

    cpdef pass_over(self, object next_offset)

    cpdef bint acknowledge(self, object queue_offset, object pop_time_ms) except -1

    @cython.locals(in_flight=dict, position=Py_ssize_t)
    cpdef Py_ssize_t acknowledge_run(self, list deliveries, Py_ssize_t start, object now_ms, dict errors) except -1

    cpdef bint is_consumed(self, object queue_offset) except -1

    cpdef find(self, object queue_offset, object pop_time_ms)

    cpdef check_handle(self, object queue_offset, object pop_time_ms)

    cpdef bint is_discarded(self, object pop_time_ms) except -1

    cpdef _hide(self, object delivery, object now_ms, object invisible_ms)

    cpdef _remove(self, object delivery)

    @cython.locals(hidden=list)
    cpdef _surface(self, object now_ms)

    cpdef _surface_delivery(self, object delivery)

    cpdef _drop_stale(self)

    cpdef _rebuild(self)
