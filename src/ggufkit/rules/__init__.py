"""What can be wrong with a file: one row per rule, and what a finding is.

A rule is an id, a severity, a message, a remedy and an exception. The code that looks for broken
rules belongs in `checks`, or in `format` where the parser finds them.
"""
