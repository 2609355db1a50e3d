"""A live model is written as its saved checkpoint would be converted, byte for byte."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import ggufkit.transformers
from ggufkit.errors import CheckpointError, MissingExtraError, ValueTypeError

ORACLE = Path(__file__).parents[1] / "oracle"
sys.path.insert(0, str(ORACLE))
INSTALLED = importlib.util.find_spec("transformers") is not None
LIBRARY = int(importlib.metadata.version("transformers").partition(".")[0]) if INSTALLED else 0
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # of transformers and PEFT
needs_5 = pytest.mark.skipif(LIBRARY < 5, reason="transformers renames weights since version 5")
# Older classes whose weights are tied, joined, transposed or of experts; those below are all newer.
OLDER = {
    *("bert", "gemma3-pictures", "gpt-oss", "gpt2", "llama", "llama-tied", "mamba", "mixtral"),
    *("olmoe", "phi3", "qwen2moe", "qwen3moe", "t5"),
}
# These cannot be converted as transformers saves them: their published checkpoints differ.
NOT_CONVERTED = {"granite4-attention", "qwen3vlmoe", "minimax-01"}


def cases():
    if LIBRARY < 5:
        return []
    import tiny

    newer = {name for name, spec in tiny.CASES.items() if spec["library"] == 5}
    return sorted((newer | OLDER) - NOT_CONVERTED)


@pytest.fixture
def tiny():
    import tiny
    import transformers

    transformers.logging.set_verbosity_error()
    return tiny


@pytest.fixture
def llama(tiny):
    return tiny.model_of("llama")


@pytest.fixture
def words(tiny, tmp_path):
    """The folder of a tokenizer."""
    (tmp_path / "words").mkdir()
    tiny.save_bytes(tmp_path / "words")
    return tmp_path / "words"


def of_checkpoint(model, words, folder, recipe="Q8_0"):
    """Return the bytes that a saved checkpoint gives."""
    model.save_pretrained(folder / "saved")
    for path in words.iterdir():
        (folder / "saved" / path.name).write_bytes(path.read_bytes())
    with ggufkit.convert(folder / "saved", name="tiny", pre="gpt-2") as source:
        return source.quantize(recipe).write(folder / "saved.gguf")[0].read_bytes()


def of_live(model, words, folder, recipe="Q8_0", **options):
    path = folder / "live.gguf"
    saved = ggufkit.transformers.save(
        model, words, path, recipe, name="tiny", pre="gpt-2", **options
    )
    assert saved == [path]
    return path.read_bytes()


@needs_5
def test_there_are_more_than_twenty_classes():
    import tiny as module

    assert len({module.CASES[name]["config"] for name in cases()}) > 20


@needs_5
@pytest.mark.parametrize("case", cases())
def test_bytes_are_those_of_the_converted_checkpoint(case, tiny, tmp_path):
    model, words = tiny.model_of(case), tmp_path / "words"
    words.mkdir()
    tiny.VOCABULARIES[tiny.CASES[case]["vocabulary"]](words)
    assert of_live(model, words, tmp_path) == of_checkpoint(model, words, tmp_path)


@needs_5
def test_a_model_that_was_loaded_goes_back_to_the_names_it_was_loaded_by(tiny, words, tmp_path):
    import transformers

    tiny.model_of("qwen3moe").save_pretrained(tmp_path / "first")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "first")
    assert of_live(model, words, tmp_path) == of_checkpoint(model, words, tmp_path)


@needs_5
def test_a_tokenizer_is_saved_and_nothing_is_left_of_it(llama, words, tmp_path, monkeypatch):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(words)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    live = of_live(llama, tokenizer, tmp_path)
    assert list(temporary.iterdir()) == []
    tokenizer.save_pretrained(tmp_path / "own")
    assert live == of_checkpoint(llama, tmp_path / "own", tmp_path)


@needs_5
def test_experts_that_share_weights_do_not_compute_them_each(tiny, words, tmp_path, monkeypatch):
    from ggufkit.frameworks.live.weights import LiveWeights

    counts, compute = {}, LiveWeights._compute

    def counted(self, group):
        counts[group] = counts.get(group, 0) + 1
        return compute(self, group)

    monkeypatch.setattr(LiveWeights, "_compute", counted)
    of_live(tiny.model_of("qwen3moe"), words, tmp_path)
    experts = [n for group, n in counts.items() if "experts.gate_up_proj" in str(group)]
    assert len(experts) == 3
    assert max(experts) <= 4  # for gate and up, and again where threads overlap; not 12 times


@needs_5
@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["q_proj", "down_proj"]},
        {"target_modules": ["q_proj"], "use_dora": True},
        {"target_modules": ["v_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["embed_tokens", "up_proj"]},
        {"target_modules": ["k_proj"], "trainable_token_indices": [3, 5]},
    ],
)
@pytest.mark.parametrize("case", ["llama", "llama-tied"])
def test_adapters_are_merged_in_the_file_only(case, settings, tiny, words, tmp_path):
    import peft
    import torch

    torch.manual_seed(1)
    adapted = peft.get_peft_model(
        tiny.model_of(case), peft.LoraConfig(r=4, init_lora_weights=False, **settings)
    )
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    live = of_live(adapted, words, tmp_path)
    assert all(torch.equal(tensor, before[n]) for n, tensor in adapted.state_dict().items())
    merged = adapted.merge_and_unload()
    assert live == of_checkpoint(merged, words, tmp_path)


@needs_5
@pytest.mark.parametrize("bits", [4, 8])
def test_layers_of_bitsandbytes_are_decoded(bits, llama, words, tmp_path):
    import torch
    import transformers

    llama.save_pretrained(tmp_path / "plain")
    settings = transformers.BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", quantization_config=settings, dtype=torch.bfloat16
    )
    assert of_live(model, words, tmp_path) == of_checkpoint(model, words, tmp_path)


@needs_5
def test_adapters_of_decoded_layers_are_added(llama, words, tmp_path):
    import peft
    import torch
    import transformers

    llama.save_pretrained(tmp_path / "plain")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain",
        quantization_config=transformers.BitsAndBytesConfig(load_in_4bit=True),
        dtype=torch.bfloat16,
    )
    alone = of_live(model, words, tmp_path, "F32")
    names = ["q_proj"]
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=4, init_lora_weights=False, target_modules=names)
    )
    base = ggufkit.open((tmp_path / "live.gguf").rename(tmp_path / "base.gguf"))
    assert of_live(adapted, words, tmp_path, "F32") != alone
    merged = ggufkit.open(tmp_path / "live.gguf")
    layer = adapted.get_base_model().model.layers[0].self_attn.q_proj
    delta = layer.get_delta_weight("default").detach().float().numpy()
    for name, tensor in base.items():
        change = np.abs(merged[name].numpy() - tensor.numpy()).max()
        assert (change > 0) == ("attn_q" in name)
    query = "blk.0.attn_q.weight"
    change = np.sort(merged[query].numpy() - base[query].numpy(), None)  # rows are permuted
    assert change == pytest.approx(np.sort(delta, None), abs=0.02)


SHARDED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as distributed, tiny, ggufkit.transformers
from torch.distributed.fsdp import fully_shard
rank, folder = int(sys.argv[2]), Path(sys.argv[3])
distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
)
model = tiny.model_of("qwen3moe").float()
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
saved = ggufkit.transformers.save(
    model, folder / "words", folder / "live.gguf", "Q8_0", name="tiny", pre="gpt-2"
)
assert bool(saved) == (rank == 0)
distributed.barrier()
"""


@needs_5
def test_shards_of_fsdp_are_gathered_by_all_processes(tiny, words, tmp_path):
    arguments = [sys.executable, "-c", SHARDED, str(ORACLE)]
    processes = [subprocess.Popen([*arguments, str(rank), str(tmp_path)]) for rank in (0, 1)]
    assert [process.wait(300) for process in processes] == [0, 0]
    live = (tmp_path / "live.gguf").read_bytes()
    assert live == of_checkpoint(tiny.model_of("qwen3moe").float(), words, tmp_path)


@needs_5
def test_only_the_first_process_writes_a_model_that_all_have(llama, words, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert ggufkit.transformers.save(llama, words, tmp_path / "live.gguf") == []
    assert not (tmp_path / "live.gguf").exists()


@needs_5
def test_partitions_of_deepspeed_are_gathered_one_at_a_time(llama, words, tmp_path, monkeypatch):
    import contextlib

    import torch

    expected, partitions, gathered = of_checkpoint(llama, words, tmp_path), {}, []

    @contextlib.contextmanager
    def gather(parameters):
        (parameter,) = parameters
        gathered.append(parameter)
        parameter.data = partitions[parameter.ds_id]
        yield
        parameter.data = torch.empty(0, dtype=parameter.dtype)

    for number, parameter in enumerate(llama.parameters()):
        partitions[number] = parameter.data
        parameter.ds_id, parameter.ds_shape = number, parameter.shape
        parameter.data = torch.empty(0, dtype=parameter.dtype)
    zero = types.SimpleNamespace(GatheredParameters=gather)
    monkeypatch.setitem(sys.modules, "deepspeed", types.SimpleNamespace(zero=zero))
    assert of_live(llama, words, tmp_path) == expected
    assert {id(parameter) for parameter in gathered} == set(map(id, llama.parameters()))


@needs_5
def test_a_trainer_leaves_a_quant_at_each_checkpoint(llama, words, tmp_path):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(words)
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 4
    arguments = transformers.TrainingArguments(
        str(tmp_path / "run"), max_steps=2, save_steps=1, per_device_train_batch_size=1,
        report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    callback = ggufkit.transformers.GGUFCallback("Q8_0", name="tiny", pre="gpt-2")
    transformers.Trainer(
        llama.float(), arguments, train_dataset=rows, processing_class=tokenizer,
        callbacks=[callback],
    ).train()  # fmt: skip
    for step in (1, 2):
        folder = tmp_path / "run" / f"checkpoint-{step}"
        plain = shutil.copytree(folder, tmp_path / str(step) / "model")  # it gives no other keys
        with ggufkit.convert(plain, name="tiny", pre="gpt-2") as source:
            expected = source.quantize("Q8_0").write(tmp_path / f"{step}.gguf")[0]
        assert (folder / "model-Q8_0.gguf").read_bytes() == expected.read_bytes()


@needs_5
@pytest.mark.filterwarnings("ignore")  # those of TRL are not ours
@pytest.mark.parametrize("has_adapter", [False, True])
def test_a_trainer_of_trl_leaves_a_quant_too(llama, words, tmp_path, has_adapter):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    import peft
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(words)
    rows = datasets.Dataset.from_dict({"input_ids": [list(range(8))] * 4})
    arguments = trl.SFTConfig(
        str(tmp_path / "run"), max_steps=1, save_steps=1, per_device_train_batch_size=1,
        report_to=[], use_cpu=True, disable_tqdm=True, bf16=False, eos_token=tokenizer.decode(0),
        pad_token=tokenizer.decode(1), learning_rate=0.1,
    )  # fmt: skip
    trainer = trl.SFTTrainer(
        llama.float(), arguments, train_dataset=rows, processing_class=tokenizer,
        peft_config=peft.LoraConfig(target_modules=["q_proj"]) if has_adapter else None,
        callbacks=[ggufkit.transformers.GGUFCallback("Q8_0", name="tiny", pre="gpt-2")],
    )  # fmt: skip
    trainer.train()
    merged = trainer.model.merge_and_unload() if has_adapter else trainer.model
    merged.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with ggufkit.convert(tmp_path / "model", name="tiny", pre="gpt-2") as source:
        (expected,) = source.quantize("Q8_0").write(tmp_path / "expected.gguf")
    left = tmp_path / "run" / "checkpoint-1" / "model-Q8_0.gguf"
    assert left.read_bytes() == expected.read_bytes()


@pytest.mark.skipif(LIBRARY != 4, reason="for an environment with transformers 4")
def test_older_transformers_are_refused(tiny, words, tmp_path):
    with pytest.raises(MissingExtraError, match="transformers 5"):
        ggufkit.transformers.save(tiny.model_of("llama"), words, tmp_path / "m.gguf")


@needs_5
def test_a_model_of_another_library_is_refused(words, tmp_path, torch):
    with pytest.raises(ValueTypeError, match="state_dict"):
        ggufkit.transformers.save(torch.nn.Linear(2, 2), words, tmp_path / "m.gguf")


MEMORY = """
import sys, peft, transformers, ggufkit.transformers
size = dict(vocab_size=320, hidden_size=1024, intermediate_size=4096, num_hidden_layers=3)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_attention_heads=8, **size))
if sys.argv[2] == "True":
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear"))

def status(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # the peak begins here
ggufkit.transformers.save(model, sys.argv[1], sys.argv[3], "Q8_0", pre="gpt-2")
largest = max(p.nbytes for p in model.parameters())
print((status("VmHWM") - before) / largest, sum(p.nbytes for p in model.parameters()) / largest)
"""


@needs_5
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("has_adapter", "tensors"), [(False, 4), (True, 7)])
def test_the_memory_of_a_few_tensors_is_enough(words, tmp_path, has_adapter, tensors):
    script = [sys.executable, "-c", MEMORY, str(words), str(has_adapter), str(tmp_path / "m.gguf")]
    # Else glibc keeps freed memory of up to 32 MiB a block.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    done = subprocess.run(script, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    extra, whole = map(float, done.stdout.split())
    assert extra < tensors < whole / 1.5


# State dicts.


@pytest.mark.parametrize("kind", ["torch", "numpy", "safetensors"])
def test_a_state_dict_converts_as_its_checkpoint(kind, tiny, words, tmp_path):
    import safetensors.torch

    model = tiny.model_of("llama-f32")
    expected = of_checkpoint(model, words, tmp_path)
    path = tmp_path / "saved" / "model.safetensors"
    state = {
        "torch": lambda: safetensors.torch.load_file(path),
        "numpy": lambda: {n: t.numpy() for n, t in safetensors.torch.load_file(path).items()},
        "safetensors": lambda: ggufkit.safetensors.load(path),
    }[kind]()
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    for settings in (config, model.config):
        with ggufkit.convert(
            state, config=settings, tokenizer=words, name="tiny", pre="gpt-2"
        ) as source:
            path = source.quantize("Q8_0").write(tmp_path / "state.gguf")[0]
        assert path.read_bytes() == expected


def test_what_a_state_dict_lacks_is_an_error(tmp_path):
    state = {"model.norm.weight": np.ones(4, np.float32)}
    config = {"architectures": ["LlamaForCausalLM"]}
    with pytest.raises(ValueTypeError, match="config="):
        ggufkit.convert(state)
    with pytest.raises(CheckpointError, match="the folder of one"):
        ggufkit.convert(state, config=config, tokenizer=3)
    with pytest.raises(CheckpointError, match="the state dict"):
        ggufkit.convert(state, config=config)
    with pytest.raises(ValueTypeError, match="a folder has its own files"):
        ggufkit.convert(tmp_path, config=config)
