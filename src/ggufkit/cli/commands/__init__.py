"""One module for each command, named after it.

A module holds `command` and what only it needs. It parses options, calls one public function and
prints; shared pieces belong in `cli`.
"""
