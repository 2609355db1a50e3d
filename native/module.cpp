// The extension module: each part binds itself.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_scan(nb::module_ &module);
void bind_quants(nb::module_ &module);
void bind_xxh64(nb::module_ &module);
void bind_guard(nb::module_ &module);
void bind_unpack(nb::module_ &module);

NB_MODULE(_native, module) {
    module.doc() = "Native core of ggufkit: the header scanner, kernels of quantization, a hash.";
    bind_scan(module);
    bind_quants(module);
    bind_xxh64(module);
    bind_guard(module);
    bind_unpack(module);
}
