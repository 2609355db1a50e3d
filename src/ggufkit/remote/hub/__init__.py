"""The Hugging Face Hub: lists of a repository's files, and settings of its users.

Nothing of GGUF lives here: which files form a model is known in `models.hub`.
"""
