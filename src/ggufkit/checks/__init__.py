"""Check whether a file is sound, and whether llama.cpp would load it.

Functions here look for broken rules and report findings; they never change a file. Repairs belong
in `edits`.
"""
