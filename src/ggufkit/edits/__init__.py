"""Change metadata, names and the set of tensors, in new files or in place.

This package has all operations that keep the numbers in tensors. Changes of tensor types belong in
`quantization`, changes of formats in `conversion`.
"""
