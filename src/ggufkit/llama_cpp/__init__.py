"""llama.cpp through its Python binding: load a model, run it, and look at what its graph computes.

What is done with the results lives elsewhere: importance data in `imatrix`, quality in
`evaluation`. No other package knows the structures or functions of llama.cpp.
"""
