"""Files, locks, threads, processes and processors, without any knowledge of GGUF.

Code here suits any program that handles large files safely. Code that knows tensors, keys or
headers belongs in `format` or above.
"""
