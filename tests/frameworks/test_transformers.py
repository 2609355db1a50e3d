"""Models of GGUF files compute in transformers what their checkpoints compute."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import ggufkit.torch
import ggufkit.transformers
import small_llama
from ggufkit.errors import CheckpointError, GGUFError

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
import known

pytestmark = pytest.mark.torch

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
# Files of the first cannot be converted, and files of the second lack a layer of its class. Of
# models that see or hear, the file has the text model alone, which is another class.
NOT_LOADED = {"bert-two-labels", "bert-classifier"} | known.UNLOADED | known.seeing()
# 0 where it is not installed: these tests run in the oracle's environments alone.
INSTALLED = importlib.util.find_spec("transformers") is not None
VERSION = importlib.metadata.version("transformers") if INSTALLED else "0"
LIBRARY = int(VERSION.partition(".")[0])


def computed_here():
    """Return the cases whose logits this version of transformers computed."""
    cases = set()
    for path in (FOLDER / "computed").glob("*.npz"):
        with np.load(path) as arrays:
            cases |= {path.stem} if int(arrays["library"]) == LIBRARY else set()
    return cases


CASES = sorted(computed_here() - NOT_LOADED)
TOLERANCE = 1e-5  # of the largest number: the same code sums in another order
STORED_PLUS_ONE = {"gemma": 1e-4, "gemma-f16": 2e-3}  # norms, whose last bits that takes
NO_WINDOWS = {"mistral"}  # files of Mistral have no sliding windows, so long prompts differ


@pytest.fixture
def transformers():
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def converted(case):
    folder = FOLDER / "checkpoints" / case
    return ggufkit.convert(folder, outtype="f32", pre="gpt-2", name="tiny")


def test_there_are_cases():
    assert len(CASES) > 20, "make test-oracle makes them and sets GGUFKIT_ORACLE"


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_checkpoint(case, torch, transformers):
    with np.load(FOLDER / "computed" / f"{case}.npz") as arrays:
        prompt, expected = torch.from_numpy(arrays["prompt"])[None], arrays["values"]
    with converted(case) as source:
        model, tokenizer = ggufkit.transformers.load(source, attn_implementation="eager")
    more = {"decoder_input_ids": prompt.flip(1)} if model.config.is_encoder_decoder else {}
    with torch.inference_mode():
        out = model.eval()(prompt, **more)
    computed = (out.logits if hasattr(out, "logits") else out.last_hidden_state)[0].numpy()
    if model.config.architectures == ["Qwen3ForSequenceClassification"]:  # a reranker
        expected = expected[-1, [tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no")]]
    assert computed.shape == expected.shape
    seen = slice(32 if case in NO_WINDOWS else None)
    tolerance = STORED_PLUS_ONE.get(case, TOLERANCE)
    assert np.abs(computed - expected)[seen].max() <= tolerance * np.abs(expected).max()


@pytest.mark.filterwarnings("ignore")  # of transformers
def test_a_real_quantized_model_answers_with_its_tokenizer(smollm2, torch, transformers):
    model, tokenizer = ggufkit.transformers.load(smollm2, dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    text = "The capital of France is"
    tokens = tokenizer(text, return_tensors="pt")
    assert tokens.input_ids[0].tolist() == ggufkit.tokenizer(smollm2).encode(text).ids
    answer = model.generate(**tokens, max_new_tokens=2, do_sample=False)[0]
    assert tokenizer.decode(answer).startswith(f"{text} Paris")
    messages = [{"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    template = ggufkit.chat_template(smollm2)
    assert rendered == template.render(messages, add_generation_prompt=True)


def test_weights_are_those_of_torch_load(torch, transformers):
    with converted("qwen2") as source:
        model, tokenizer = ggufkit.transformers.load(source, dtype=torch.float16, device="cpu")
        plain = ggufkit.torch.load(source, dtype=torch.float16)
    assert tokenizer is not None
    state = model.state_dict()
    assert torch.equal(state["model.embed_tokens.weight"], plain["token_embd.weight"])
    assert torch.equal(state["model.layers.0.mlp.up_proj.weight"], plain["blk.0.ffn_up.weight"])


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("case", ["qwen2", "llama", "gemma3", "gpt2", "bert", "mamba"])
def test_packed_matrices_compute_the_same_in_less_memory(case, torch, transformers, tmp_path):
    with converted(case) as source:
        (path,) = source.quantize("Q8_0").write(tmp_path / "q8_0.gguf")
    prompt = torch.arange(1, 9)[None]
    loaded = [
        ggufkit.transformers.load(path, quantized=quantized, attn_implementation="eager").model
        for quantized in (False, True)
    ]
    with torch.inference_mode():
        plain, packed = (model.eval()(prompt)[0] for model in loaded)
    assert torch.equal(plain, packed)
    sizes = [sum(weight.nbytes for weight in model.parameters()) for model in loaded]
    assert sizes[1] < sizes[0]
    assert any(isinstance(w, ggufkit.torch.PackedTensor) for w in loaded[1].parameters())


def test_a_file_with_missing_tensors_is_refused(transformers):
    with converted("qwen2") as source:
        tensors = [
            tensor for tensor in source.tensors.values() if tensor.name != "blk.0.ffn_up.weight"
        ]
        with pytest.raises(CheckpointError, match="up_proj"):
            ggufkit.transformers.load(source.replace(tensors=tensors))


@pytest.mark.parametrize(
    ("key", "number", "message"),
    [("block_count", 10**6, "number of layers"), ("attention.head_count", 1, "refuses the model")],
)
def test_keys_that_the_tensors_contradict_are_an_error(
    key, number, message, tmp_path, transformers
):
    keys = {**small_llama.keys(), f"llama.{key}": np.uint32(number)}
    path = ggufkit.save(tmp_path / "m.gguf", small_llama.tensors(), keys)[0]
    with pytest.raises(GGUFError, match=message):
        ggufkit.transformers.load(path)
