"""What a model is and takes: summary, header map, diff, hash, memory.

Functions here answer questions about models and change nothing. Verdicts on whether a file is
sound belong in `checks`.
"""
