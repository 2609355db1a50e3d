"""Defines commands with options in groups, and options that several commands share."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click
from click.decorators import FC

from ggufkit.cli.output import answer_in_binary, examples, note, size
from ggufkit.errors import GGUFError
from ggufkit.validation.sizes import bytes_of

Parsed = TypeVar("Parsed")
LEAST_MEMORY: Final = 1 << 20  # bytes; a smaller number is probably a number without its unit
_TOKENS: Final = re.compile(r"(?P<number>\d{1,12})(?P<unit>[km]?)", re.IGNORECASE)


class SharedOption(Protocol):
    """Adds an option to a command, as a decorator."""

    def __call__(self, command: FC, /) -> FC:
        """Return the command with the option."""


OUTPUT: Final = ("-o", "--output")
REST: Final = "Options"


class Command(click.Command):
    """A command with an argument OUT, which -o names too, and perhaps with groups of options."""

    def __init__(self, *args: Any, groups: Mapping[str, str] = {}, **settings: Any) -> None:
        """Keep the groups: the names of their options, by heading, as the help shows them."""
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
        """Parse the words; if -o is used, they have no argument OUT."""
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        if values.get("output") is None:
            return super().parse_args(ctx, args)
        others = [param for param in self.params if param.name not in {"out", "output"}]
        without_argument = copy.copy(self)
        without_argument.params = [*others, click.Option([*OUTPUT, "out"])]
        return click.Command.parse_args(without_argument, ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options of each group, then the ungrouped ones."""
        records = {
            option: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx))
            for option in [max(param.opts, key=len)]
        }
        for heading, options in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(option) for option in options.split()])
        with formatter.section(REST):
            formatter.write_dl(list(records.values()))


class Count(click.IntRange):
    """A whole number, which the help calls N."""

    def get_metavar(self, *_: Any, **__: Any) -> str:
        """Return what stands for it in the help."""
        return "N"


def option(names: str, help: str, **settings: Any) -> SharedOption:
    """Return an option with a value, from names such as "-o --output out OUT".

    They are its own names, perhaps that of its parameter, and perhaps what the help calls its
    value. The help shows a default unless `show_default` is false.
    """
    words = names.split()
    metavar = words.pop() if words[-1] != words[-1].lower() else None
    settings = {"show_default": "default" in settings, **settings}
    return click.option(*words, metavar=metavar, help=help, **settings)


def flag(names: str, help: str) -> SharedOption:
    """Return an option without a value, from names as `option` takes them."""
    return option(names, help, is_flag=True)


def new_command(
    name: str, *commands: str, cls: type[click.Command] = click.Command, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return what makes a function a command, with the examples `commands` in its help."""
    return click.command(name, cls=cls, epilog=examples(*commands), **settings)


threads_option: SharedOption = option(
    "--threads", "Number of threads.  [default: one per usable core]", type=Count(min=1)
)
dry_run_option: SharedOption = flag(
    "--dry-run", "List the files that would be written; write nothing."
)
json_option: SharedOption = flag("--json as_json", "Print the files as JSON.")
NO_CLOBBER: Final = "ggufkit.no_clobber"  # in the context of a command
_READ: Final = "ggufkit.files_read"


def will_read(file: str) -> None:
    """Remember a file that the command reads, so that it is not overwritten."""
    click.get_current_context().meta.setdefault(_READ, []).append(file)


def files_read() -> tuple[str, ...]:
    """Return the files of `will_read`."""
    return tuple(click.get_current_context().meta.get(_READ, ()))


def _set_no_clobber(_context: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 (click's signature)
    click.get_current_context().meta[NO_CLOBBER] = value


no_clobber_option: SharedOption = click.option(
    "--no-clobber",
    is_flag=True,
    expose_value=False,
    callback=_set_no_clobber,
    help="Fail if an output exists already.",
)
resume_option: SharedOption = flag(
    "--resume", "Keep unfinished output if the command stops early, and continue from what is kept."
)
cluster_option: SharedOption = option(
    "--cluster ADDRESS",
    "Run the work on this Dask cluster; ADDRESS is its scheduler, such as tcp://host:8786.",
)
no_tensor_first_split_option: SharedOption = flag(
    "--no-tensor-first-split", "Write shards, the first of them with the metadata and no tensors."
)
arch_path_option: SharedOption = option(
    "--arch-path FOLDER",
    "Folder of architecture files to search first.  [repeatable]",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
)


FILE_PATH: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


def parse_size(text: str) -> int:
    """Return a number of bytes: plain, or as 500M and 2G (powers of 1000) or 512MiB (of 1024).

    After a size in powers of 1024, the command also prints sizes in them.
    """
    try:
        nbytes, is_binary = bytes_of(text)
    except GGUFError as error:
        raise click.BadParameter(error.message) from None
    if is_binary:
        answer_in_binary()
    return nbytes


def parse_memory(text: str) -> int:
    """Return the bytes of a device's memory; BadParameter for an implausibly small size."""
    nbytes = parse_size(text)
    if nbytes < LEAST_MEMORY:
        raise click.BadParameter(
            f"{text!r} is {nbytes:,} bytes; write {text.strip()}GiB or {text.strip()}G"
            if text.strip().isdecimal()
            else f"{text!r} is {nbytes:,} bytes, less than any device has"
        )
    return nbytes


def parse_devices(text: str) -> tuple[int, ...]:
    """Return the bytes of one device's memory, or of several with + between them.

    "auto" stands for the devices of this machine, and prints what they are.
    """
    if text.strip().lower() == "auto":
        from ggufkit.inspection.device_memory import device_memories  # noqa: PLC0415 (starts a process)

        memories = device_memories()
        note(f"the devices of this machine: {' + '.join(map(size, memories))}")
        return memories
    return tuple(parse_memory(part) for part in text.split("+"))


chunks_option: SharedOption = option("--chunks", "Read at most N chunks.", type=Count(1))


def output_option(default: str) -> Callable[[FC], FC]:
    """Return the option for the file to write, with a name by default."""
    return option("-o --output out OUT", "The file to write.", default=default)


MAX_CONTEXT: Final = 1 << 24  # tokens, far beyond any model


class TokenCount(Count):
    """A number of tokens: plain, or as 32k and 1M, in powers of 1024 as usual for contexts."""

    name = "number of tokens"

    def convert(
        self,
        value: Any,  # noqa: ANN401 (click's signature)
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Return the number; BadParameter for a wrong one."""
        match = _TOKENS.fullmatch(value.strip()) if isinstance(value, str) else None
        if match and match["unit"]:
            value = int(match["number"]) * 1024 ** " km".index(match["unit"].lower())
        return super().convert(value, param, ctx)


def usage(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Return `parse` with its errors raised as BadParameter."""

    @functools.wraps(parse)
    def parsed(text: str) -> Parsed:
        try:
            return parse(text)
        except GGUFError as error:
            raise click.BadParameter(str(error)) from None

    return parsed
