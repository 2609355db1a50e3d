"""GGUF itself: types, values, metadata, headers and file names.

Everything here turns bytes of a header into Python values, or back. Tensor data belongs in
`quants` and `models`; files are opened in `models`.
"""
