"""Help, messages and pages are plain English: they avoid the phrases listed here."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import ggufkit
from ggufkit.cli.app import COMMANDS, app

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ggufkit.__file__).parent

# Each phrase, and what to write instead.
INSTEAD = {
    r"\banew\b": "again",
    r"(?<!there )\b(is|are|was|were) no (?!longer\b|more\b)\w+": "is not a ...",
    r"\b(is|are) none\b": "there is no ..., or: is not a ...",
    r"\bthere (is|are|was|were) (none|no such|nothing)\b": "say what is missing",
    r"\bnone (is|are|was|were) (told|given|said)\b": "if no ... is given",
    r"\b(that|those|this) which\b": "what, or the noun itself",
    r"\bof (which|whom)\b": "a second sentence",
    r"\b(as|than) ever\b": "as usual",
    r"\bso (already|likewise)\b": "already has ...",
    r"\bwish(es)?\b": "want",
    r"\breckon(s|ed|ing)?\b": "assume, estimate or count",
    r"\bset (right|apart)\b": "correct, repair; separate",
    r"\bsets? (it|this|them|these) right\b": "correct, repair",
    r"(?<!far )\bapart\b(?! from)": "separate, separately",
    r"\bin the places? of\b": "instead of",
    r"\bin its place\b": "instead",
    r"\b(from|by|to) who\b": "from whoever",
    r"\bstands? (twice|there|beside|side by side)\b": "appears twice, is",
    r"\bbeside\b": "in the same folder, next to, compared with",
    r"\b(is|are|was|were) said to\b": "name who says it",
    r"\b(is|are|was|were) answered with\b": "say who answers, and what",
    r"\bthe very\b": "the same",
    r"\b(go|goes|went) on (with|from|to)\b": "continue",
    r"\bwithout a word\b": "silently",
    r"\bwhat (no|of|comes of|becomes of|has|is to be)\b": "name the thing",
    r"\b(set|get|fetch) (it|them) (again )?from who\b": "from whoever",
    r"\blet (through|pass)\b": "accept",
    r"\b(be)?gotten\b|\bwhence\b|\bthereof\b|\bthus\b|\bhence\b|\bwhereby\b|\bnevertheless\b": (
        "so, therefore, from there"
    ),
    r"\bmeanwhile\b": "during ...",
    r"\bfor want of\b": "because ... is missing",
    r"\bin the midst of\b|\bamid\b": "while, during",
    r"\b\w+ aside\b": "except for ...",
    r"\bhas its say\b|\bhave a say\b": "decides",
    r"\bto the letter\b": "exactly",
    r"\b(announced|told|shown) where\b": "the header announces ..., but only ...",
    r"\bout of doubt\b|\bwithout a doubt\b": "safely",
    r"\bin silence\b": "silently",
    r"\bshall\b": "must, will",
    r"\bforetells?\b": "reports",
    r"\berrs?\b": "has the least error",
    r"\bnone of its\b": "say what stays",
    r"\bwithout more\b": "by default",
    r"\bat hand\b": "of this machine, available",
    r"\bdrawn? towards\b": "shrunk towards ... by N tokens",
    r"\b(has|have) no place in\b": "is unknown to",
    r"\banswers? otherwise\b": "gives different output",
    r"\bover and over\b": "repeating, again and again",
    r"\banother \w+ than the usual one\b": "change what is written",
    r"\bmakes? it so\b": "completes it",
    r"\bwith so many\b": "with N ...",
    r"\bthe ears of\b": "the audio encoder",
    r"\bgoes on \w+ing\b": "keeps ...ing",
}
PHRASES = {re.compile(phrase, re.IGNORECASE): plain for phrase, plain in INSTEAD.items()}


def helps() -> Iterator[tuple[str, str]]:
    for name in COMMANDS:
        module = importlib.import_module(f"ggufkit.cli.commands.{name.replace('-', '_')}")
        yield from help_texts(module.command, name)


def help_texts(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Yield the help of a command and of the commands in it.

    A command keeps the help option that the first context gave it, so names come from the app.
    """
    with click.Context(command, info_name=name, **app.context_settings) as ctx:
        yield f"{name} --help", " ".join(command.get_help(ctx).split())
    for inner, subcommand in getattr(command, "commands", {}).items():
        yield from help_texts(subcommand, f"{name} {inner}")


def literals(path: Path) -> Iterator[str]:
    """Yield the sentences of a module that are shown: docstrings are not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
            yield node.value


def messages() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for text in literals(path):
            if text.count(" ") > 1:
                yield str(path.relative_to(PACKAGE)), text
    why = PACKAGE / "rules" / "rules.toml"
    yield why.name, why.read_text(encoding="utf-8")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the prose of each page; of the changelog that of the newest version."""
    paths = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
    written = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("benchmarks/**/*.md"))]
    for path in [*(ROOT / name for name in paths), *written]:
        yield str(path.relative_to(ROOT)), prose(path.read_text(encoding="utf-8"))
    newest = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    yield "CHANGELOG.md", prose(newest)


def prose(page: str) -> str:
    """Return a page without its code."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return " ".join(re.sub(r"`[^`]*`", "`code`", page).split())


TEXTS = {"help": helps, "messages": messages, "pages": pages}


def offences(texts: Iterator[tuple[str, str]]) -> list[str]:
    return [
        f"{place}: ...{text[max(match.start() - 40, 0) : match.end() + 30]}... ({plain})"
        for place, text in texts
        for phrase, plain in PHRASES.items()
        for match in phrase.finditer(text)
    ]


@pytest.mark.parametrize("kind", TEXTS)
def test_pages_help_and_messages_avoid_the_listed_phrases(kind):
    assert offences(TEXTS[kind]()) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "lay out all tensors anew",
        "config.json is no JSON",
        "of these there is none",
        "get the file from who converted it",
        "Reckon without flash attention",
        "a TOML file in the place of RECIPE",
        "without more, all models get the same",
        "it is set apart",
    ],
)
def test_finds_the_listed_phrases(sentence):
    assert offences(iter([("here", sentence)]))


@pytest.mark.parametrize(
    "sentence",
    ["llama.cpp no longer loads it", "which is no longer true", "apart from this key"],
)
def test_accepts_plain_sentences(sentence):
    assert not offences(iter([("here", sentence)]))
