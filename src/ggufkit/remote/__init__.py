"""Remote files: read by ranges, on servers, in object stores, in memory.

It knows URLs, requests, retries and trust, but not GGUF. Names of models on the Hub and in caches
belong to `models`, and so does opening files.
"""
