"""Each task in a checkpoint of Jina Embeddings 3 becomes an adapter next to the model."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
import shell
import tensors_file
from ggufkit.errors import CheckpointError

RNG = np.random.default_rng(6)
TASKS = ["retrieval.query", "separation"]
WIDTH, WORDS, RANK = 8, 10, 2
ARCH = """like = "jina-bert-v3"
name = "jina-bert-v3"
vocabulary = "none"
classes = ["TinyJina"]
[late]
"tokenizer.ggml.token_type_count" = "type_vocab_size"
"""
CONFIG = {
    "architectures": ["TinyJina"], "model_type": "xlm-roberta", "hidden_size": WIDTH,
    "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": WORDS,
    "max_position_embeddings": 34, "pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
    "hidden_act": "gelu", "position_embedding_type": "rotary", "rotary_emb_base": 20000.0,
    "lora_adaptations": TASKS, "lora_alpha": 3,
    "task_instructions": {task: f"Do {task}: " for task in TASKS},
}  # fmt: skip
LAYER = "roberta.encoder.layers.0"
PLAIN = {
    f"{LAYER}.mixer.Wqkv": (3 * WIDTH, WIDTH), f"{LAYER}.mixer.out_proj": (WIDTH, WIDTH),
    f"{LAYER}.mlp.fc1": (12, WIDTH), f"{LAYER}.mlp.fc2": (WIDTH, 12),
}  # fmt: skip
TABLES = {
    "roberta.embeddings.word_embeddings": (WORDS, WIDTH),
    "roberta.embeddings.token_type_embeddings": (1, WIDTH),
}


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def weights():
    norms = ("roberta.emb_ln", f"{LAYER}.norm1", f"{LAYER}.norm2")
    arrays = {f"{name}.{kind}": numbers(WIDTH) for name in norms for kind in ("weight", "bias")}
    for name, (rows, columns) in (PLAIN | TABLES).items():
        stem = f"{name}.parametrizations.weight"
        sizes = [(RANK, columns), (rows, RANK)]
        arrays[f"{stem}.original"] = numbers(rows, columns)
        a, b = sizes[::-1] if name in TABLES else sizes
        arrays[f"{stem}.0.lora_A"] = numbers(len(TASKS), *a)
        arrays[f"{stem}.0.lora_B"] = numbers(len(TASKS), *b)
    return arrays | {f"{name}.bias": numbers(shape[0]) for name, shape in PLAIN.items()}


def checkpoint(folder, tensors=None, **fields):
    (folder / "arch").mkdir()
    (folder / "arch" / "tiny.toml").write_text(ARCH)
    arrays = weights() if tensors is None else tensors
    return tensors_file.write_checkpoint(folder / "in", CONFIG | fields, model=arrays)


def adapters_of(folder):
    return ggufkit.task_adapters(folder, arch_path=[folder.parent / "arch"])


def test_model_with_its_adapter_merged_has_the_sum_for_each_task(tmp_path):
    tensors = weights()
    folder = checkpoint(tmp_path, tensors)
    base = ggufkit.convert(folder, outtype="f32", arch_path=[tmp_path / "arch"])
    for number, (task, adapter) in enumerate(adapters_of(folder).items()):
        assert adapter.metadata["adapter.lora.task_name"] == task == TASKS[number]
        assert adapter.metadata["adapter.lora.prompt_prefix"] == f"Do {task}: "
        merged = ggufkit.merge_lora(base, adapter)
        for name, gguf in (
            (f"{LAYER}.mixer.Wqkv", "blk.0.attn_qkv"),
            ("roberta.embeddings.word_embeddings", "token_embd"),
            ("roberta.embeddings.token_type_embeddings", "token_types"),
        ):
            stem = f"{name}.parametrizations.weight"
            a, b = (tensors[f"{stem}.0.lora_{letter}"][number] for letter in "AB")
            change = a @ b if name in TABLES else b @ a
            expected = tensors[f"{stem}.original"] + 3 / RANK * change
            merged_weight = merged.tensors[f"{gguf}.weight"].numpy()
            np.testing.assert_allclose(merged_weight, expected, rtol=1e-5, atol=1e-5)


def run(folder, out, *options):
    return shell.ggufkit("convert", folder, out, "--arch-path", folder.parent / "arch", *options)


def test_convert_writes_the_adapters_next_to_the_model(tmp_path):
    folder, out = checkpoint(tmp_path), tmp_path / "out"
    out.mkdir()
    done = run(folder, out / "jina-{ftype}.gguf", "--quantize", "Q8_0,F16")
    assert (done.code, "lora_A" in done.err) == (0, False)
    assert sorted(path.name for path in out.iterdir()) == [
        "jina-f16.gguf", "jina-q8_0.gguf",
        "lora-retrieval.query-jina-q8_0.gguf", "lora-separation-jina-q8_0.gguf",
    ]  # fmt: skip
    for task, adapter in adapters_of(folder).items():
        with ggufkit.open(out / f"lora-{task}-jina-q8_0.gguf") as written:
            assert written.metadata == adapter.metadata
    listed = run(folder, out / "x.gguf", "--dry-run", "--json").json()
    assert len(listed) == 1 + len(TASKS)


def test_adapters_are_refused_as_shards_and_left_out_of_streams(tmp_path):
    folder = checkpoint(tmp_path)
    refused = run(folder, tmp_path / "x.gguf", "--shard-tensors", "3")
    assert (refused.code, "cannot be shards" in refused.err) == (2, True)
    assert not list(tmp_path.glob("*.gguf"))
    streamed = run(folder, "-")
    assert streamed.code == 0
    assert "without its adapters for retrieval.query, separation" in streamed.err


def test_checkpoint_without_tasks_has_no_adapters(tmp_path):
    tensors = {name: array for name, array in weights().items() if ".lora_" not in name}
    folder = checkpoint(tmp_path, tensors, lora_adaptations=None)
    assert adapters_of(folder) == {}
    assert run(folder, tmp_path / "x.gguf").code == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lora_adaptations": ["../../x", "separation"]}, "is not a name of a task"),
        ({"lora_adaptations": ["separation", "separation"]}, "not a list of different names"),
        ({"lora_adaptations": ["separation", 3]}, "not a list of different names"),
        ({"task_instructions": {"separation": "x"}}, "has no text for 'retrieval.query'"),
        ({"lora_adaptations": [*TASKS, "more"], "task_instructions": None}, "axis 0 of length 3"),
        ({"task_instructions": 3}, "contradicts its format"),
        ({"lora_alpha": "x"}, "contradicts its format"),
    ],
)
def test_config_that_contradicts_itself_is_refused_before_anything_is_written(
    fields, message, tmp_path
):
    folder = checkpoint(tmp_path, **fields)
    with pytest.raises(CheckpointError) as error:
        adapters_of(folder)
    assert message in str(error.value)
    assert run(folder, tmp_path / "x.gguf").code == 1
    assert not list(tmp_path.glob("*.gguf"))


def test_lone_factor_is_named(tmp_path):
    tensors = weights()
    del tensors[f"{LAYER}.mlp.fc1.parametrizations.weight.0.lora_B"]
    with pytest.raises(CheckpointError, match=r"mlp\.fc1\.weight\.0\.lora_B is missing"):
        adapters_of(checkpoint(tmp_path, tensors))
