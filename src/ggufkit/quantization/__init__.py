"""What llama-quantize does: recipes, the type of each tensor, target sizes.

Everything here decides types and makes models whose tensors are encoded when written. The
encoders themselves are in `quants`.
"""
