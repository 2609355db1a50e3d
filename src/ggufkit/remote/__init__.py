"""Remote files: read by ranges, on servers, in object stores, in memory.

It knows URLs, requests, retries and whom to trust, and nothing of GGUF. Names of models (the Hub's
and those of caches) and opening files belong to `models`.
"""
