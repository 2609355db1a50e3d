"""What types cost a model: errors of tensors, sensitivities, and the knapsack that chooses by them.

Measures tensors and does arithmetic. What decides about a whole model, or runs one, lives in
`quantization`.
"""
