"""Write tiny vocabularies in formats of their own, for tiny.py."""

from __future__ import annotations

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


def shown(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def save_rwkv(folder: Path) -> None:
    """Save a vocabulary of RWKV; its first line has the id 1."""
    lines = [f"{n} {shown(data)!r} {len(data)}\n" for n, data in enumerate(pieces(), 1)]
    (folder / "rwkv_vocab_v20230424.txt").write_text("".join(lines), encoding="utf-8")
    settings = {"tokenizer_class": "RwkvTokenizer"}
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


OWN = {"rwkv": save_rwkv, "plamo": save_plamo}
