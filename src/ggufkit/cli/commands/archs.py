"""`ggufkit archs`: list the architectures that `convert` supports."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from ggufkit.cli.options import arch_path_option, flag, new_command
from ggufkit.cli.output import counted, emit, paged, table, with_options
from ggufkit.errors import GGUFError, printable


@new_command(
    "archs",
    "ggufkit archs",
    "ggufkit archs LlamaForCausalLM",
    "ggufkit archs --arch-path my-architectures --json",
)
@click.argument("name", metavar="[NAME]", required=False)
@arch_path_option
@flag("--json as_json", "Print the list as JSON.")
def command(name: str | None, *, arch_path: tuple[Path, ...], as_json: bool) -> None:
    """List the architectures that `convert` supports, with their model classes.

    NAME is one of the listed names, or a class from the field `architectures` of config.json:
    then only that architecture is shown. If it is unknown, the error names the nearest class.
    """
    from ggufkit.conversion.architecture.architecture import architectures  # noqa: PLC0415 (slow to import)

    archs = architectures(arch_path)
    if name in archs:
        archs = {name: archs[name]}
    elif name:
        matching = _matching_names(name, list(archs), arch_path)
        archs = {
            stem: arch
            for stem, arch in archs.items()
            if arch == matching or (arch.convert_if and name in arch.classes)
        }
    if as_json:
        emit([_plain(stem, arch.name, arch.path, arch.classes) for stem, arch in archs.items()])
        return
    texts = ((stem, arch.path, ", ".join(arch.classes)) for stem, arch in archs.items())
    rows = [tuple(map(printable, row)) for row in texts]
    with paged():
        table(("NAME", "FILE", "CLASSES"), rows)
        if not name:
            served = sum(len(arch.classes) for arch in archs.values())
            click.echo(f"\n{counted(len(rows), 'architecture')}, {served} classes")


def _matching_names(name: str, names: list[str], arch_path: tuple[Path, ...]) -> object:
    """Return the architecture of a class; the error also names the nearest architecture."""
    from ggufkit.conversion.architecture.architecture import find  # noqa: PLC0415 (slow to import)

    try:
        return find([name], arch_path)
    except GGUFError as error:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0]}?" if near else ";"
        remedy = with_options(error.remedy)
        raise click.BadParameter(f"{error.message}{hint} {remedy}", param_hint="NAME") from None


def _plain(stem: str, name: str, path: str, classes: tuple[str, ...]) -> dict[str, object]:
    return {"name": stem, "architecture": name, "file": path, "classes": list(classes)}
