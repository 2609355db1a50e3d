"""Readers of what is described as JSON for fuzzing: image models, adapters, results, settings.

Each takes the bytes of a file and a folder that it may write to, as `targets` do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import comfy_weights
import diffusion_checkpoints
import ggufkit
import plain_checkpoint
import tensors_file
from fuzzing.checkpoints import MOST_BYTES, TENSORS, write_tensors
from ggufkit.conversion.diffusion.convert_diffusion import convert_diffusion, convert_for_sd_cpp
from ggufkit.evaluation.quality_rows import read_evaluation
from ggufkit.lora.peft import CONFIG
from ggufkit.quantization.losses.sensitivities import FORMAT, Sensitivity
from ggufkit.quantization.provenance import SETTINGS, SOURCE
from ggufkit.quantization.recipe_files import read_recipe, read_tensor_types
from ggufkit.reports.drawings import quality_drawing
from ggufkit.view import vocabulary_process
from ggufkit.view.page_model import PageModel
from ggufkit.view.serving import routes
from ggufkit.view.serving.routes import GETS, POSTS, TILES, Query

LOADERS: Final = (convert_diffusion, convert_for_sd_cpp)
MOST_TOKENS: Final = 1 << 12


def read_diffusion(data: bytes, folder: Path) -> None:
    """Take the first byte for a loader, the rest for the tensors of an image model, and convert."""
    path = folder / "model.safetensors"
    document = parsed(data[1:])
    write_tensors(object_in(document, TENSORS), path, object_in(document, "notes"))
    convert = LOADERS[data[0] % len(LOADERS)] if data else LOADERS[0]
    with convert(path) as model:
        for tensor in model.tensors.values():
            if tensor.nbytes < MOST_BYTES:
                tensor.source.read(0, min(tensor.rows, 300))


def read_adapter(data: bytes, folder: Path) -> None:
    """Lay out the folder of an adapter, convert it, and merge it."""
    base = folder / "base"
    if not base.exists():
        (folder / "arch").mkdir()
        (folder / "arch" / "plain.toml").write_text(plain_checkpoint.ARCH)
        weights = plain_checkpoint.whole(np.float32)
        tensors_file.write_checkpoint(base, plain_checkpoint.CONFIG, model=weights)
    document = parsed(data)
    place = folder / "adapter"
    place.mkdir(exist_ok=True)
    (place / CONFIG).write_text(json.dumps(document.get("config")), "utf-8")
    write_tensors(object_in(document, TENSORS), place / "adapter_model.safetensors", {})
    arch_path = [folder / "arch"]
    with ggufkit.convert_lora(place, base=base, arch_path=arch_path) as adapter:
        adapter.write(folder / "adapter.gguf")
    with (
        ggufkit.convert(base, arch_path=arch_path) as model,
        ggufkit.merge_lora(model, folder / "adapter.gguf") as merged,
    ):
        for tensor in merged.tensors.values():
            tensor.numpy()


def read_result(data: bytes, folder: Path) -> None:
    """Take the first byte for a kind of file, the rest for the file."""
    path = folder / "a.json"
    path.write_bytes(data[1:])
    kind = data[0] % len(RESULTS) if data else 0
    RESULTS[kind](path)


def _read_sensitivities(path: Path) -> None:
    for loss in Sensitivity.open(path).losses(["a.weight"]).values():
        loss(0.5)


def _read_recipe(path: Path) -> None:
    ggufkit.quantize(_model(path), read_recipe(path))


def _read_types(path: Path) -> None:
    ggufkit.quantize(_model(path), "Q8_0", tensor_types=read_tensor_types(path))


def _reproduce(path: Path) -> None:
    keys = {SOURCE: "0", SETTINGS: path.read_bytes().decode("utf-8", "replace")}
    with ggufkit.open(_model(path)) as model:
        ggufkit.reproduce(model.replace(metadata=model.metadata.updated(keys)), model)


def _model(path: Path) -> Path:
    model = path.with_name("model.gguf")
    if not model.exists():
        tensors = {f"{name}.weight": np.ones((4, 256), np.float32) for name in ("a", "blk.0.b")}
        ggufkit.save(model, tensors, {"general.architecture": "llama", "llama.block_count": 1})
    return model


RESULTS: Final = (
    lambda path: quality_drawing(read_evaluation(path)),
    _read_sensitivities,
    _read_recipe,
    _read_types,
    _reproduce,
)


def show_page(data: bytes, folder: Path) -> None:
    """Take the first byte for a question to the page, the rest for the model that it shows."""
    path = folder / "input.gguf"
    path.unlink(missing_ok=True)
    path.write_bytes(data[1:])
    names = [*GETS, *TILES, *POSTS]
    name = names[data[0] % len(names)] if data else names[0]
    with ggufkit.open(path) as model:
        page = _Page(str(path), model)
        page.prepare()
        for values in QUERIES:
            _ask(page, name, values)


def _ask(page: PageModel, name: str, values: dict[str, str]) -> None:
    query = Query(values, [page])
    if name in GETS:
        response = routes._answered(lambda: routes._json(GETS[name](query)))
    elif name in TILES:
        response = routes._answered(lambda: routes._json(TILES[name](query) is None))
    else:
        response = routes._answered(lambda: routes._json(POSTS[name](query, BODY)))
    json.loads(bytes(response.body))


class _Page(PageModel):
    """A model on the page whose vocabulary is read in this process, where coverage sees it."""

    def ask_vocabulary(self, job: dict[str, Any]) -> dict[str, Any]:
        if len(self.tokens()) > MOST_TOKENS:
            return {}
        result = vocabulary_process.answer(job | {"vocabulary": self.name})
        for cache in ("_model", "_tokenizer", "_texts", "special_texts"):
            getattr(vocabulary_process, cache).cache_clear()
        return result


QUERIES: Final = (
    {},
    {"tensor": "1", "key": "2", "id": "1", "search": "a", "count": "9", "start": "1"},
    {"tensor": "0", "level": "1", "row": "1", "column": "1", "sort": "size"},
)
BODY: Final[dict[str, Any]] = {
    "text": "a b", "context": 64, "messages": [{"role": "user", "content": "a"}],
    "before": "a", "after": "b",
}  # fmt: skip


def parsed(data: bytes) -> dict[str, Any]:
    """Return the document in some bytes, empty for what is no object."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def object_in(document: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object in a document, empty if there is none."""
    value = document.get(key)
    return value if isinstance(value, dict) else {}


# Seeds.


def diffusion_seeds() -> Iterator[bytes]:
    """Yield the names of small image models, plain and quantized for ComfyUI."""
    for number, make in enumerate(diffusion_checkpoints.MODELS.values()):
        tensors = {name: ["F16", list(shape)] for name, shape in sorted(make().items())[:60]}
        yield bytes([number % 2]) + json.dumps({TENSORS: tensors}).encode()
    names = {name: ["F16", list(s)] for name, s in diffusion_checkpoints.MODELS["flux"]().items()}
    for form in comfy_weights.FORMATS:
        parts, kinds, settings = comfy_weights.layer(form)
        layer = "double_blocks.0.img_mlp.2"
        entries = {k: v for k, v in sorted(names.items())[:20] if not k.startswith(layer)}
        for part, array in parts.items():
            kind = kinds.get(part, tensors_file.NAMES[array.dtype.name])
            entries[f"{layer}.{part}"] = [kind, list(array.shape)]
        entries[f"{layer}.comfy_quant"] = settings
        yield b"\0" + json.dumps({TENSORS: entries | {"img_in.weight": ["F16", [8, 8]]}}).encode()


def adapter_seeds() -> Iterator[bytes]:
    """Yield an adapter of PEFT in two forms."""
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {f"{stem}.lora_A.weight": ["F32", [4, 8]], f"{stem}.lora_B.weight": ["F32", [8, 4]]}
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8}
    more = {"use_rslora": True, "alpha_pattern": {"q_proj": 16}, "alora_invocation_tokens": [1]}
    for fields in (config, config | more):
        yield json.dumps({"config": fields, TENSORS: tensors}).encode()


def result_seeds() -> Iterator[bytes]:
    """Yield a file of each kind that `read_result` knows."""
    number = {"value": 1.5, "error": 0.1}
    row = {"name": "b", "nbytes": 7, "perplexity": number, "divergence": {"kld": {"mean": number}}}
    level = {"type": "Q4_K", "bits": 4.5, "error": 0.1, "divergence": 0.2}
    group = {"name": "g", "tensors": ["a.weight"], "levels": [level]}
    settings = {
        "ggufkit": "1", "recipe": "Q8_0", "recipe_name": "x", "patterns": [["a", "Q4_0"]],
        "tensor_types": [["b", "F16"]], "override_kv": {"k": ["uint32", 1]}, "layers": [0],
        "types": {"a.weight": "F16"}, "output_tensor_type": "Q6_K", "search": "best",
    }  # fmt: skip
    documents = (
        json.dumps({"base": row, "models": [row]}),
        json.dumps({"format": FORMAT, "context": 512, "predictions": 9, "groups": [group]}),
        'base = "Q8_0"\n[types]\n"blk.(0|1).*" = "Q4_0"\n',
        "a.*=Q4_0 b=F16",
        json.dumps(settings),
    )
    for kind, text in enumerate(documents):
        yield bytes([kind]) + text.encode()
