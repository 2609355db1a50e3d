"""Commands whose help shows options in groups, and whose output may be named by -o."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

OUTPUT: Final = ("-o", "--output")
REST: Final = "Options"


class Command(click.Command):
    """A command with an argument OUT, which -o names too, and perhaps with groups of options."""

    def __init__(
        self,
        *args: Any,
        groups: Mapping[str, Sequence[str]] = {},
        **settings: Any,
    ) -> None:
        """Keep the groups: the names of their options, by heading, in the order of the help."""
        super().__init__(*args, **settings)
        self.groups = groups
        option = click.Option(
            [*OUTPUT, "output"],
            expose_value=False,
            metavar="OUT",
            help="The output, instead of the argument OUT.",
        )
        self.params.append(option)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; with -o there is no argument OUT."""
        named, _, _ = self.make_parser(ctx).parse_args(list(args))
        if named.get("output") is None:
            return super().parse_args(ctx, args)
        others = [param for param in self.params if param.name not in {"out", "output"}]
        without_argument = copy.copy(self)
        without_argument.params = [*others, click.Option([*OUTPUT, "out"])]
        return click.Command.parse_args(without_argument, ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options of each group, then those of none."""
        records = {
            option: record
            for param in self.get_params(ctx)
            if (record := param.get_help_record(ctx))
            for option in [max(param.opts, key=len)]
        }
        for heading, options in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(option) for option in options])
        with formatter.section(REST):
            formatter.write_dl(list(records.values()))
