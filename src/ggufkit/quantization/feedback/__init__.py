"""Quantizes tensors with a Hessian: errors are fed back where that helps on inputs held out.

`fed_back` makes the rows, `outcomes` says what came of it. How one block takes feedback belongs in
`quants`, and how Hessians are computed and stored in `imatrix`.
"""
