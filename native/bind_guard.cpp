// Python bindings of guarded maps.
#include <nanobind/nanobind.h>

#include "guard.hpp"

namespace nb = nanobind;

#if defined(__unix__) || defined(__APPLE__)

namespace {

// Keeps no view of `data`: a view would prevent closing it. The mapper releases both.
ggufkit::Guard *guard(nb::handle data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    const void *begin = view.buf;
    const size_t size = static_cast<size_t>(view.len);
    PyBuffer_Release(&view);
    return new ggufkit::Guard(begin, size);
}

}  // namespace

void bind_guard(nb::module_ &module) {
    using namespace nb::literals;
    nb::class_<ggufkit::Guard>(module, "MapGuard",
                               "Zeros, and no signal, where a mapped file was cut.")
        .def(nb::new_(&guard), "data"_a)
        .def("release", &ggufkit::Guard::release, "Stop guarding: call it before unmapping.")
        .def("renew", &ggufkit::Guard::renew, "Take faults again if another handler took them.")
        .def_prop_ro("lost", &ggufkit::Guard::lost, "Whether bytes were missed since.");
}

#else

void bind_guard(nb::module_ &) {}

#endif
