"""The lazy tensor, the tensors of a model by name, and both made of arrays.

Sources of rows are in `ggufkit.models.rows` and `ggufkit.models.sources`. What opens files, and
what reads them, is outside this folder.
"""
