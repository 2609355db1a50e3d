"""Converts other formats to a Model and back: `convert` and `export`.

Holds the two verbs and the mapping of tensors; the formats have packages of their own. Python code
knows no architecture by name: architectures are files in `architecture/files`.
"""
