"""Chooses the type of each tensor from its name and shape.

`type_choice` applies the tables of recipes; `eligibility` tells which tensors are quantized at all,
and `diffusion_rules` has the rules for image and video models.
"""
