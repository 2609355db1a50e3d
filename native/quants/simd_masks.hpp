// Masks as lanes whose bits are all set or all clear: for all but AVX-512, which has registers of
// masks. Instructions of AVX2 are named at the right.
#pragma once

namespace {

typedef Ints Mask;

KERNEL_INLINE Mask less(Floats a, Floats b) { return a < b; }    // vcmpltps
KERNEL_INLINE Mask equal(Floats a, Floats b) { return a == b; }  // vcmpeqps
KERNEL_INLINE Mask is_nan(Floats a) { return a != a; }           // vcmpneqps
KERNEL_INLINE Mask greater(Ints a, Ints b) { return a > b; }     // vpcmpgtd

KERNEL_INLINE Ints increment(Ints value, Mask where) { return value - where; }  // vpsubd

}  // namespace
