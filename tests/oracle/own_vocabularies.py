"""Write tiny vocabularies in formats of their own, for tiny.py."""

from __future__ import annotations

import base64
import json
from pathlib import Path

WORDS = ["The", " quick", " brown", " fox", "\n\n", "日本", "語", "é", "'s", " don't", '\\n"']


def pieces() -> list[bytes]:
    """Return all bytes and then a few words, one of which is cut inside of a character."""
    return [
        *(bytes([byte]) for byte in range(256)),
        *map(str.encode, WORDS),
        "é".encode() + b"\xc3",
    ]


def literal(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def save_rwkv(folder: Path) -> None:
    """Save a vocabulary of RWKV; its first line has the id 1."""
    lines = [f"{n} {literal(data)!r} {len(data)}\n" for n, data in enumerate(pieces(), 1)]
    (folder / "rwkv_vocab_v20230424.txt").write_text("".join(lines), encoding="utf-8")
    settings = {"tokenizer_class": "RwkvTokenizer", "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def save_plamo(folder: Path) -> None:
    """Save a vocabulary of PLaMo."""
    names = ["unk", "bos", "eos", "pad", "op"]
    rows = [[f"<|plamo:{n}|>", 0.0, "UNKNOWN" if n == "unk" else "CONTROL"] for n in names]
    rows += [[f"<0x{byte:02X}>", 0.0, "BYTE"] for byte in range(256)]
    rows += [[word, -1.5 - n / 3, "NORMAL", None] for n, word in enumerate(["a", "e", *WORDS])]
    rows += [["<|plamo:extra|>", 0.0, "NORMAL"]]
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    (folder / "tokenizer.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {f"{n}_token": f"<|plamo:{n}|>" for n in ("unk", "bos", "eos", "pad")}
    settings["chat_template"] = "{{ messages[0].content }}"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


TOKENIZER = '''import base64
from pathlib import Path

from transformers import PreTrainedTokenizer


class Ranks(PreTrainedTokenizer):
    """What the converter asks of a tokenizer with ranks."""

    def __init__(self, name_or_path="", **said):
        lines = (Path(name_or_path) / "FILE").read_text().splitlines()
        pairs = (line.split() for line in lines)
        self.mergeable_ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
        self.special_tokens = {text: n for n, text in enumerate(SPECIALS, len(lines))}
        super().__init__(name_or_path=name_or_path, **said)

    @property
    def vocab_size(self):
        return len(self.mergeable_ranks) + len(self.special_tokens)

    def get_vocab(self):
        return {**self.mergeable_ranks, **self.special_tokens}

    def _tokenize(self, text):
        return []

    def _convert_token_to_id(self, token):
        return 0
'''
WORD = ["Th", "The", " q", "ui", " qui", "ck", " quick", "  "]
LEARNED = [*map(str.encode, WORD), "日".encode()[:2], "日".encode()]


def save_ranks(folder: Path, name: str, specials: list[str]) -> None:
    """Save a file of ranks, and the code by which the converter reads it."""
    tokens = [bytes([byte]) for byte in range(256)] + LEARNED
    lines = (f"{base64.b64encode(token).decode()} {n}\n" for n, token in enumerate(tokens))
    (folder / name).write_text("".join(lines))
    every = [*specials, *(f"<|extra_{n}|>" for n in range(205))]
    code = TOKENIZER.replace("FILE", name).replace("SPECIALS", repr(every))
    (folder / "tokenization_ranks.py").write_text(code)
    home = {"AutoTokenizer": ["tokenization_ranks.Ranks", None]}
    settings = {"tokenizer_class": "Ranks", "auto_map": home}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def save_qwen(folder: Path) -> None:
    """Save ranks as Qwen 1 has them."""
    save_ranks(folder, "qwen.tiktoken", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def save_hunyuan(folder: Path) -> None:
    """Save ranks as Hunyuan A13B has them."""
    names = ["endoftext", "startoftext", "bos", "eos", "pad"]
    save_ranks(folder, "hy.tiktoken", [f"<|{name}|>" for name in names])


OWN = {"qwen": save_qwen, "hunyuan": save_hunyuan, "rwkv": save_rwkv, "plamo": save_plamo}
