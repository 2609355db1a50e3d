"""Defines the commands, one module each, named after the command.

A module holds `command` and the helpers that only it needs. It parses options, calls one public
function and prints; shared code belongs in `cli`.
"""
