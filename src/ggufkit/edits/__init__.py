"""Change metadata, names and the set of tensors, in new files or in place.

This package has all operations that keep the numbers in tensors. A change of tensor types belongs
in `quantization`, of formats in `conversion`.
"""
