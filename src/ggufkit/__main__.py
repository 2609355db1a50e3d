"""`python -m ggufkit` is the command `ggufkit`."""

from ggufkit.cli import main

main()
