"""Lazy operations on tensors, and their inverses.

An operation states its output's shape without data. Which operation applies to which tensor is
said by architecture files, not here.
"""
