"""Answer questions about models: summary, header map, diff, digests, memory.

Functions here change nothing. Code that says whether a file is sound belongs in `checks`.
"""
