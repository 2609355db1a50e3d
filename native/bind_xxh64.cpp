// Python bindings of XXH64, like hashlib. Only one thread at a time may call an object.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "xxh64.hpp"

namespace nb = nanobind;
using ggufkit::Xxh64;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void update(Xxh64 &hash, Bytes data) {
    nb::gil_scoped_release unlocked;
    hash.update(data.data(), data.size());
}

}  // namespace

void bind_xxh64(nb::module_ &module) {
    using namespace nb::literals;
    nb::class_<Xxh64>(module, "Xxh64", "XXH64 with seed 0.")
        .def(nb::init<>())
        .def("update", update, "data"_a, "Take more bytes.")
        .def("digest", &Xxh64::digest, "Return the hash of all bytes taken so far.");
}
