"""Live models of transformers: `save` as GGUF without a checkpoint, and `compute_imatrix`.

Their weights are presented to `convert` under the names of a checkpoint, and computed when they are
read.
"""
