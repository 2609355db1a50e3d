"""Lazy operations on tensors, and their inverses.

An operation gives its output's shape without reading data. Architecture files say which operation
applies to which tensor.
"""
