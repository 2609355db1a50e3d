"""Files, locks, threads, processes and processors: nothing of GGUF.

Code here would serve any program that handles large files with care. What knows a tensor, a key
or a header belongs in `format` or above.
"""
