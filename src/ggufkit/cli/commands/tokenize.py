"""`ggufkit tokenize`: split a text into tokens, or turn tokens into text."""

from __future__ import annotations

import re
from typing import Final

import click

import ggufkit
from ggufkit.cli.model_argument import MODEL, look_at
from ggufkit.cli.options import flag, new_command
from ggufkit.cli.output import counted, emit, paged, print_text, table
from ggufkit.cli.pipes import text_of
from ggufkit.cli.streams import PIPE
from ggufkit.errors import printable
from ggufkit.frameworks.tokenize import TokenizedText
from ggufkit.system.text_file import Most

SHOWN_WRONG: Final = 40  # characters of a word that is not an id


@new_command(
    "tokenize",
    'ggufkit tokenize model.gguf "Hello, world"',
    "ggufkit tokenize model.gguf - < prompt.txt",
    "ggufkit tokenize model.gguf - --count < book.txt",
    'ggufkit tokenize model.gguf --decode "9906 11 1917"',
    'ggufkit tokenize model.gguf "Hello" --json',
)
@click.argument("file", type=MODEL)
@click.argument("text", default=PIPE)
@flag("--decode", "Turn ids into text: TEXT holds ids.")
@flag("--ids only_ids", "Print only the ids, on one line.")
@flag("--count only_count", "Print only the number of tokens.")
@flag("--no-special", "Leave out the tokens that llama.cpp adds to a text, such as its beginning.")
@flag("--json as_json", "Print ids and pieces as JSON.")
def command(  # noqa: PLR0913 (the options)
    file: str,
    text: str,
    *,
    decode: bool,
    only_ids: bool,
    only_count: bool,
    no_special: bool,
    as_json: bool,
) -> None:
    """Split TEXT into tokens as llama.cpp does with the model FILE: ids, pieces and their number.

    Without TEXT, or for -, the text is standard input, to its last line end. Special tokens within
    the text are recognized. --decode turns ids, with spaces or commas between them, into text.
    """
    if sum((decode, only_ids, only_count, as_json)) > 1:
        raise click.UsageError("Use only one of --decode, --ids, --count and --json")
    if decode and no_special:
        raise click.UsageError("--no-special is about tokens that --decode does not add")
    if text == PIPE:
        text = text_of(PIPE, Most.CALIBRATION)
    with look_at(file) as model:
        if decode:
            print_text(ggufkit.detokenize(model, _ids(text)))
            return
        try:
            text.encode()
        except UnicodeEncodeError:
            raise click.BadParameter("the text is not valid UTF-8") from None
        tokens = ggufkit.tokenize(model, text, add_special=not no_special)
    if as_json:
        emit({"count": len(tokens), "tokens": [_plain(*token) for token in _pieces(tokens)]})
    elif only_ids:
        click.echo(" ".join(map(str, tokens.ids)))
    elif only_count:
        click.echo(len(tokens))
    else:
        with paged():
            table(
                ("ID", "PIECE"),
                ((str(number), _printable_piece(piece)) for number, piece in _pieces(tokens)),
            )
            click.echo(counted(len(tokens), "token"))


def _ids(text: str) -> list[int]:
    """Return the ids in a text; brackets around them are allowed, as JSON has them."""
    words = re.split(r"[\s,]+", text.strip().removeprefix("[").removesuffix("]").strip())
    for word in words:
        if word and not re.fullmatch(r"\d{1,10}", word, re.ASCII):
            raise click.BadParameter(f"{word[:SHOWN_WRONG]!r} is not the id of a token")
    return [int(word) for word in words if word]


def _pieces(tokens: TokenizedText) -> list[tuple[int, bytes]]:
    return list(zip(tokens.ids, tokens.pieces, strict=True))


def _plain(number: int, piece: bytes) -> dict[str, object]:
    """Return a token; its text is null where the piece is a part of a character."""
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        text = None
    return {"id": number, "text": text, "bytes": piece.hex()}


def _printable_piece(piece: bytes) -> str:
    """Return a piece in quotes; bytes that are a part of a character as escapes."""
    text = piece.decode(errors="backslashreplace")
    return printable(f'"{text}"')
