"""Names of models on the Hugging Face Hub, and the files that they stand for.

Requests belong to `remote`, and opening the files to `models`.
"""
