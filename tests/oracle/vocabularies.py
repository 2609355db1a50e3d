"""Make tiny tokenizers with their libraries and ask llama.cpp's converter what it writes of them.

    python vocabularies.py LLAMA_CPP FOLDER

makes FOLDER/NAME for each case: the tokenizer files, config.json, and expected.json with the keys
of the converter and the ids that transformers gives to some texts. A pre-tokenizer that the
converter does not know is "unknown" there. Runs in the environment of requirements.txt.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    processors,
    trainers,
)
from tokenizers import pre_tokenizers as pre
from transformers import AutoTokenizer, LlamaTokenizer, LlamaTokenizerFast
from transformers.convert_slow_tokenizer import convert_slow_tokenizer

TEXTS = [
    "The quick brown fox, 12345 times; isn't tired.\n\n  Ünïcödé 日本語 русский 🦙🚀 don't\t x",
    "def main():\n    return {'a': 1}  # code   €½²\r\nhe'LL <tool> <|im_start|> a b ▁y [MASK]!",
    "I'Ve 1,234,567.89 camelCase HTTPServer ไทย हिन्दी ... !!! ",
]
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
UNKNOWN = "unknown"


def byte_level(pre_tokenizer=None, special=("<|endoftext|>",), normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer or pre.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    alphabet = pre.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[*special], initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(TEXTS * 9, trainer)
    return tokenizer


def by_expression(pattern):
    spelled = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre.Sequence([pre.Split(Regex(pattern), "isolated"), spelled])


def template(tokenizer, single, pair, **special):
    numbers = [(text, tokenizer.token_to_id(text)) for text in special.values()]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=numbers
    )


def qwen2(folder):
    tokenizer = byte_level(by_expression(QWEN2), normalizer=normalizers.NFC())
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(
        [
            "<tool>",
            AddedToken("a b", normalized=False),
            AddedToken("Ġx", normalized=False),
            AddedToken("▁y", normalized=True),
            "<|look|>",
        ]
    )
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "bos_token": None}
    save(folder, tokenizer, {**settings, "added_tokens_decoder": {}, "chat_template": "{{ m }}"})


def llama3(folder):
    tokenizer = byte_level(by_expression(QWEN2), ("<s>", "<e>"), ignore_merges=True)
    template(tokenizer, "<s> $A", "<s> $A <s>:1 $B:1", bos="<s>")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    save(folder, tokenizer, {**settings, "eos_token": "<e>"})


def neox(folder):
    tokenizer = byte_level(normalizer=normalizers.NFC())
    tokenizer.add_tokens([AddedToken(" " * n, normalized=False) for n in (2, 4)])
    settings = {"tokenizer_class": "GPTNeoXTokenizer", "add_bos_token": True}
    save(folder, tokenizer, {**settings, "add_eos_token": True, "pad_token": "[PAD]"})


def digits(folder):
    tokenizer = byte_level(
        pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]),
        ("<s>", "</s>"),
    )
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    save(folder, tokenizer, {**settings, "additional_special_tokens": ["<s>", "<|new|>"]})


def falcon(folder):
    parts = [
        pre.Punctuation("contiguous"),
        pre.ByteLevel(add_prefix_space=False),
        pre.Digits(individual_digits=False),
        pre.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ]
    tokenizer = byte_level(pre.Sequence(parts))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    save(folder, tokenizer, settings)


def roberta(folder):
    tokenizer = byte_level(pre.ByteLevel(add_prefix_space=True), ("<s>", "<pad>", "</s>", "<mask>"))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    save(folder, tokenizer, {"tokenizer_class": "RobertaTokenizer", "unk_token": "<s>"})


def bert(folder):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special)
    tokenizer.train_from_iterator(TEXTS * 9, trainer)
    template(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", c="[CLS]", s="[SEP]")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": False}
    tokens_of_bert = {f"{n.lower()}_token": f"[{n}]" for n in ("CLS", "SEP", "PAD", "UNK", "MASK")}
    save(folder, tokenizer, {**settings, **tokens_of_bert, "tokenize_chinese_chars": False})


def pieces(folder, name="tokenizer", **options):
    text = folder / "text"
    text.write_text("\n".join(TEXTS * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / name), hard_vocab_limit=False, minloglevel=2,
        **{"vocab_size": 220, **options},
    )  # fmt: skip
    text.unlink()
    (folder / f"{name}.vocab").unlink()


def spm(folder):
    pieces(folder, model_type="bpe", byte_fallback=True, vocab_size=400, user_defined_symbols="<u>")
    decoder = {
        "5": {"content": "▁hey▁you", "special": False},
        "7": {"content": "<|yo|>", "special": False},
        "2": {"content": "</s>", "special": True},
    }
    settings = {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True, "eos_token": "</s>"}
    listed = [{"name": "default", "template": "D"}, {"name": "tool use", "template": "T"}]
    settings |= {"added_tokens_decoder": decoder, "chat_template": listed}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "added_tokens.json").write_text(json.dumps({"<x>": 430, "<far>": 9999}))


def fallback(folder):
    pieces(folder, model_type="bpe", byte_fallback=True, vocab_size=400)
    slow = LlamaTokenizer(str(folder / "tokenizer.model"))
    slow.add_tokens(["<tool>"])
    slow.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    fast = LlamaTokenizerFast(
        tokenizer_object=convert_slow_tokenizer(slow), bos_token="<s>", eos_token="</s>"
    )
    fast.save_pretrained(folder)
    (folder / "tokenizer.model").unlink()


def t5(folder):
    special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    pieces(folder, "spiece", model_type="unigram", add_dummy_prefix=False, **special)
    (folder / "added_tokens.json").write_text(json.dumps({"<e>": 401}))


def xlm_roberta(folder):
    pieces(folder, "sentencepiece.bpe", model_type="unigram")
    settings = {"tokenizer_class": "XLMRobertaTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def save(folder, tokenizer, settings):
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


# Each with the class of the model and its type.
CASES = {
    "bert": (bert, "BertModel", "bert"),
    "digits": (digits, "Starcoder2ForCausalLM", "starcoder2"),
    "falcon": (falcon, "FalconForCausalLM", "falcon"),
    "fallback": (fallback, "LlamaForCausalLM", "llama"),
    "gemma": (spm, "GemmaForCausalLM", "gemma"),
    "gemma2": (spm, "Gemma2ForCausalLM", "gemma2"),
    "llama3": (llama3, "LlamaForCausalLM", "llama"),
    "neox": (neox, "GPTNeoXForCausalLM", "gpt_neox"),
    "nemotron": (spm, "NemotronForCausalLM", "nemotron"),
    "phi3": (spm, "Phi3ForCausalLM", "phi3"),
    "qwen2": (qwen2, "Qwen2ForCausalLM", "qwen2"),
    "roberta": (roberta, "RobertaModel", "roberta"),
    "spm": (spm, "LlamaForCausalLM", "llama"),
    "t5": (t5, "T5ForConditionalGeneration", "t5"),
    "xlm-roberta": (xlm_roberta, "XLMRobertaModel", "xlm-roberta"),
}


def config(architecture: str, model_type: str) -> dict[str, Any]:
    return {
        "architectures": [architecture], "model_type": model_type, "vocab_size": 450,
        "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 32,
        "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 9000,
        "type_vocab_size": 2,
    }  # fmt: skip


def written(folder: Path) -> list[tuple[str, str, Any]]:
    """Return the keys that the converter writes: name, type and value."""
    import gguf
    from conversion import get_model_class
    from conversion.base import ModelBase, ModelType, get_model_architecture

    parameters = ModelBase.load_hparams(folder, False)
    kind = get_model_class(get_model_architecture(parameters, ModelType.TEXT))
    model = kind(folder, gguf.LlamaFileType.ALL_F32, folder / "out", hparams=parameters)
    model.set_vocab()
    pairs = model.gguf_writer.kv_data[0].items()
    return [(k, v.type.name.lower(), _plain(v.value)) for k, v in pairs if k.startswith("token")]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)) and not isinstance(value, str):
        return list(value) if b"\0" in value else value.decode()
    return value if isinstance(value, (str, bool, float)) else int(value)


def ids(folder: Path) -> list[list[int]] | None:
    if not (folder / "tokenizer.json").exists():
        return None
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer.encode(text) for text in TEXTS]


def main(llama_cpp: str, folder: str) -> None:
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    from conversion.base import TextModel

    logging.disable(logging.ERROR)
    known = TextModel.get_vocab_base_pre

    def name(self, tokenizer):
        try:
            return known(self, tokenizer)
        except NotImplementedError:
            return UNKNOWN

    TextModel.get_vocab_base_pre = name
    for case, (make, architecture, model_type) in CASES.items():
        place = Path(folder) / case
        place.mkdir(parents=True)
        make(place)
        (place / "config.json").write_text(json.dumps(config(architecture, model_type)))
        expected = {"keys": written(place), "texts": TEXTS, "ids": ids(place)}
        (place / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main(*sys.argv[1:])
