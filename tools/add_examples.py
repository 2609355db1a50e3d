"""Add a command, a check rule, an architecture or a tensor type to a copy of the tree.

`tools/add_examples.py KIND FOLDER` changes the files that CONTRIBUTING.md names, in the copy of the
tree in FOLDER, and prints them. tests/house/test_newcomer.py then runs the tests that concern it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

Edit = Callable[[str], str]


def whole(text: str) -> Edit:
    """Return an edit that writes a new file."""
    return lambda _: text


def after(place: str, text: str) -> Edit:
    """Return an edit that puts text after the first occurrence of `place`."""

    def edit(old: str) -> str:
        if place not in old:
            raise ValueError(f"{place!r} is not there any more")
        return old.replace(place, place + text, 1)

    return edit


def before(place: str, text: str) -> Edit:
    """Return an edit that puts text before the first occurrence of `place`."""

    def edit(old: str) -> str:
        if place not in old:
            raise ValueError(f"{place!r} is not there any more")
        return old.replace(place, text + place, 1)

    return edit


def changed(line: str) -> Edit:
    """Return an edit of the changelog."""
    return after("## [Unreleased]\n\n### Added\n\n", f"- {line}\n")


COMMAND: Final = '''"""`ggufkit keys`: the names of all keys."""

from __future__ import annotations

import click

from ggufkit.cli.model_argument import MODEL, open_any
from ggufkit.cli.output import emit, examples
from ggufkit.errors import printable


@click.command("keys", epilog=examples("ggufkit keys model.gguf"))
@click.argument("file", metavar="FILE", type=MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print the names as JSON.")
def command(file: str, *, as_json: bool) -> None:
    """List the names of all keys of FILE."""
    with open_any(file) as model:
        names = list(model.metadata)
    if as_json:
        emit(names)
    else:
        click.echo("\\n".join(map(printable, names)))
'''
COMMAND_PAGE: Final = """# keys

    ggufkit keys model.gguf

`--json` prints the names as JSON.
"""
COMMAND_TEST: Final = """from __future__ import annotations

import numpy as np

import ggufkit as library
from shell import ggufkit


def test_keys_are_listed(tmp_path):
    path = tmp_path / "model.gguf"
    library.save(path, {"a": np.ones(4, np.float32)}, {"general.name": "x"})
    assert ggufkit("keys", str(path)).lines == ["general.name"]
    assert ggufkit("keys", str(path), "--json").json() == ["general.name"]
"""
RULE: Final = """[content.name-blank]
severity = "warning"
breaks = ""
message = "general.name holds nothing but spaces"
remedy = "Set a name with `ggufkit edit`"
why = "A blank name shows as nothing."

"""
RULE_CHECK: Final = '''def _about_blank(view: ModelView) -> Iterator[Violation]:
    """Look for a name that shows nothing."""
    key = "general.name"
    if view.text(key).isspace():
        yield at_key("name-blank", key)


'''
ARCHITECTURE: Final = """# An example: Qwen 3 with a norm after attention.
like = "qwen3"
name = "qwen3"
classes = ["NewForCausalLM"]

[tensors]
"model.layers.{i}.self_attn.after_norm.weight" = "blk.{i}.post_attention_norm.weight"
"""
ARCHITECTURE_TEST: Final = """from __future__ import annotations

from ggufkit.conversion.architecture.architecture import find


def test_class_is_converted_as_qwen3_is():
    assert find(["NewForCausalLM"]).name == "qwen3"
"""


TENSOR_TYPE_PARTS: Final = """    "Q8_H": lambda blocks: BlockParts(
        {"d": blocks.half(0)}, blocks.half(0), blocks.signed(2, 18)
    ),
"""


def tensor_type_file(root: Path) -> str:
    """Return the file that docs/kernels.md shows."""
    page = (root / "docs" / "kernels.md").read_text(encoding="utf-8")
    match = re.search(r"```cpp\n(struct Q8_H.*?)```", page, re.DOTALL)
    code = match[1] if match else ""
    includes = '#pragma once\n\n#include "../codec.hpp"\n#include "../extremes.hpp"\n'
    return f"{includes}\nnamespace {{\n\n{code}\n}}  // namespace\n"


def additions(kind: str, root: Path) -> dict[str, Edit]:
    """Return what each file needs for an addition of this kind, by its path."""
    rules, checks = "src/ggufkit/rules", "src/ggufkit/checks"
    return {
        "command": lambda: {
            "src/ggufkit/cli/commands/keys.py": whole(COMMAND),
            "src/ggufkit/cli/app.py": before(
                '        "list":', '        "keys": "List the names of all keys.",\n'
            ),
            "docs/keys.md": whole(COMMAND_PAGE),
            "tests/cli/commands/test_keys.py": whole(COMMAND_TEST),
            "CHANGELOG.md": changed("`ggufkit keys` lists the names of all keys."),
        },
        "rule": lambda: {
            f"{rules}/rules.toml": before("[remedies]\n", RULE),
            f"{checks}/consistency.py": lambda old: after(
                "    yield from about_tokens(view)\n", "    yield from _about_blank(view)\n"
            )(before("def inconsistencies(", RULE_CHECK)(old)),
            "tests/rules/test_content_rules.py": after(
                "CASES = {\n", '    "name-blank": ({"general__name": " "}, {}),\n'
            ),
            "CHANGELOG.md": changed("`check` finds blank names."),
        },
        "architecture": lambda: {
            "src/ggufkit/conversion/architecture/files/new.toml": whole(ARCHITECTURE),
            "tests/conversion/architecture/test_new.py": whole(ARCHITECTURE_TEST),
            "CHANGELOG.md": changed("`convert` knows NewForCausalLM."),
        },
        "type": lambda: {
            "src/ggufkit/format/types.py": after(
                "_ROWS: Final = (\n", '    TensorType(43, "Q8_H", 16, 18, "2 16*1"),\n'
            ),
            "native/quants/types/q8_h.hpp": whole(tensor_type_file(root)),
            "src/ggufkit/quants/block_parts.py": after(
                "LAYOUTS: Final[dict[str, BlockLayout]] = {\n", TENSOR_TYPE_PARTS
            ),
            "CHANGELOG.md": changed("The tensor type Q8_H."),
        },
    }[kind]()


def add(kind: str, root: Path) -> list[str]:
    """Make an addition in the tree at `root` and return the files that were touched."""
    edits = additions(kind, root)
    for name, edit in edits.items():
        path = root / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(edit(old), encoding="utf-8")
    return list(edits)


if __name__ == "__main__":
    sys.stdout.write("\n".join(add(sys.argv[1], Path(sys.argv[2]))) + "\n")
