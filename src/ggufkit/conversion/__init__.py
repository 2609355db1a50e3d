"""Other formats to Model and back: `convert` and `export`.

The two verbs and what places tensors stand here; the formats have packages of their own. No Python
knows a single architecture: those are files in `architecture/files`.
"""
