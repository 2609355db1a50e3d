"""The Hugging Face Hub: lists of a repository's files, settings of its users, the header cache.

Nothing of GGUF lives here: which files form a model is known in `models.hub`.
"""
