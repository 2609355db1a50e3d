"""Compare the predictions of models of one size: types by recipe, and types by `target`.

For each recipe the model is quantized twice, by the recipe and by `ggufkit.target` for the size of
the recipe's file, with the same importance matrix. llama.cpp then reads a text with each, and its
predictions are compared with those of the unquantized model: perplexity, the mean Kullback-Leibler
divergence, and how often the most likely token is the same. The importance matrix is computed on
the first half of the text; the second half is for measuring. Every chunk counts from its second
quarter on.

By default the model is SmolLM2 with weights off any grid: the package index has it only quantized,
and a type whose grid its weights already have would lose nothing. `widened` moves them off the grid
without changing the model's results. The text is Python's own reference (`pydoc`).

`--sensitivity` measures instead how much each kind of tensor matters: the divergence from
quantizing it alone, per unit of its relative error. The table in
`quantization/losses/sensitivities.py` comes from this.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

import ggufkit
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.compute import compute_imatrix
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.llama_cpp.session import Session
from ggufkit.models.model import Model, bits_per_weight
from ggufkit.models.sources import from_array
from ggufkit.quantization.losses.relative_errors import measure
from ggufkit.system.cpu import usable_cores

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import real

RECIPES = ("Q4_K_M", "Q3_K_M", "IQ3_M")
KINDS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
KINDS += ("token_embd", "output.weight")
PROBE = "Q3_K"
NARROW, WIDE = 576, 768  # SmolLM2's width, and the next that divides into blocks of 256
HEADS, KEY_HEADS, HEAD = 12, 4, 64
ROWS_AT_ONCE = 64

Array = npt.NDArray[np.float64]
Logits = list[tuple[npt.NDArray[np.float32], list[int]]]


# The model.


def widened(model: Model) -> Model:
    """Return SmolLM2 with rows of 768 and off its grid, computing the same as before.

    Each channel of the residual stream is rotated with another one by a random angle, some with new
    channels that are zero. Norms move into the matrices that follow, with a factor for the zeros'
    effect on the mean square. The added heads are zero.
    """
    turn = _turn(np.random.default_rng(0))
    scale = np.sqrt(NARROW / WIDE)

    def get(name: str) -> Array:
        return model.tensors[f"{name}.weight"].numpy().astype(np.float64)

    def grown(array: Array, rows: int, columns: int) -> Array:
        return np.pad(array, ((0, rows - array.shape[0]), (0, columns - array.shape[1])))

    def reading(name: str, norm: str, rows: int = 0) -> Array:
        array = get(name) * get(norm) * scale
        return grown(array, rows or len(array), WIDE) @ turn

    def writing(name: str, columns: int) -> Array:
        return turn.T @ grown(get(name), WIDE, columns)

    embeddings = get("token_embd")
    arrays = {
        "token_embd": grown(embeddings, len(embeddings), WIDE) @ turn,
        "output_norm": np.ones(WIDE),
        "output": reading("token_embd", "output_norm"),
    }
    for layer in range(int(model.metadata["llama.block_count"])):
        block = f"blk.{layer}"
        attention, feed = f"{block}.attn_norm", f"{block}.ffn_norm"
        arrays[f"{block}.attn_q"] = reading(f"{block}.attn_q", attention, HEADS * HEAD)
        arrays[f"{block}.attn_k"] = reading(f"{block}.attn_k", attention, KEY_HEADS * HEAD)
        arrays[f"{block}.attn_v"] = reading(f"{block}.attn_v", attention, KEY_HEADS * HEAD)
        arrays[f"{block}.attn_output"] = writing(f"{block}.attn_output", HEADS * HEAD)
        arrays[f"{block}.ffn_gate"] = reading(f"{block}.ffn_gate", feed)
        arrays[f"{block}.ffn_up"] = reading(f"{block}.ffn_up", feed)
        arrays[f"{block}.ffn_down"] = writing(
            f"{block}.ffn_down", get(f"{block}.ffn_down").shape[1]
        )
        arrays[attention] = arrays[feed] = np.ones(WIDE)
    epsilon = "llama.attention.layer_norm_rms_epsilon"
    metadata = model.metadata.without("general.quantization_version").updated(
        {
            "llama.embedding_length": WIDE,
            "llama.attention.head_count": HEADS,
            "llama.attention.head_count_kv": KEY_HEADS,
            epsilon: float(model.metadata[epsilon]) * NARROW / WIDE,
            "general.file_type": 1,
        }
    )
    tensors = (
        from_array(f"{name}.weight", array.astype("f4" if array.ndim == 1 else "f2"))
        for name, array in arrays.items()
    )
    return model.replace(metadata=metadata, tensors=tensors)


def _turn(rng: np.random.Generator) -> Array:
    """Return a rotation of pairs of channels."""
    order, angles = rng.permutation(WIDE), rng.uniform(0, 2 * np.pi, WIDE // 2)
    one, other = order[::2], order[1::2]
    turn = np.zeros((WIDE, WIDE))
    turn[one, one] = turn[other, other] = np.cos(angles)
    turn[one, other], turn[other, one] = np.sin(angles), -np.sin(angles)
    return turn


# Predictions.


def predictions(path: Path, text: Path, chunks: int, context: int, threads: int) -> Logits:
    """Return the logits of each chunk from its second quarter on, and the tokens that follow."""
    predictions = []
    with Session(path, length=context, batch=context, threads=threads) as session:
        tokens = session.tokenize(text.read_bytes())
        for start in range(0, chunks * context, context):
            chunk = tokens[start : start + context]
            session.clear()
            session.decode([chunk])
            predictions.append((session.logits()[context // 4 :], chunk[context // 4 + 1 :]))
    return predictions


def compared(base: Logits, other: Logits) -> dict[str, float]:
    """Return perplexity, mean divergence from `base`, and the share of equal most likely tokens."""
    rows = [
        row
        for (expected, tokens), (actual, _) in zip(base, other, strict=True)
        for row in _rows(expected, actual, tokens)
    ]
    divergence, surprise, same = (np.concatenate(column) for column in zip(*rows, strict=True))
    return {
        "perplexity": float(np.exp(np.nanmean(surprise))),
        "divergence": float(divergence.mean()),
        "same": float(same.mean()),
    }


def _rows(
    expected: npt.NDArray[np.float32], actual: npt.NDArray[np.float32], tokens: list[int]
) -> Iterator[tuple[Array, Array, Array]]:
    for start in range(0, len(expected), ROWS_AT_ONCE):
        p, q = (_log_softmax(logits[start : start + ROWS_AT_ONCE]) for logits in (expected, actual))
        following = tokens[start : start + len(p)]
        surprise = -q[np.arange(len(following)), following]
        yield (np.exp(p) * (p - q)).sum(axis=1), surprise, p.argmax(axis=1) == q.argmax(axis=1)


def _log_softmax(logits: npt.NDArray[np.float32]) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


# The two comparisons.


class Bench:
    """The model, the halves of the text, the importance matrix, and the model's predictions."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        """Prepare the data of both comparisons."""
        self.options, self.folder = options, folder
        self.path = options.model or folder / "smollm2-wide-f16.gguf"
        if not self.path.exists():
            ggufkit.write(widened(ggufkit.open(real.smollm2())), self.path)
        self.model = ggufkit.open(self.path)
        topics = pydoc_data.topics.topics
        text = "\n".join(topics[name] for name in sorted(topics))
        self.first, self.second = folder / "first.txt", folder / "second.txt"
        self.first.write_text(text[: len(text) // 2])
        self.second.write_text(text[len(text) // 2 :])
        self.imatrix = self._imatrix()
        self.base = self.predictions_of(self.path)

    def _imatrix(self) -> Imatrix:
        path = self.folder / "imatrix.gguf"
        if not path.exists():
            context, threads = self.options.context, self.options.threads
            compute_imatrix(
                *(self.path, self.first),
                chunks=2 * self.options.chunks,
                context=context,
                batch=context,
                threads=threads,
            ).save(path)
        return Imatrix.open(path)

    def predictions_of(self, path: Path) -> Logits:
        """Return what a file predicts of the second half of the text."""
        return predictions(
            path, self.second, self.options.chunks, self.options.context, self.options.threads
        )

    def result(self, label: str, quantized: Model) -> dict[str, object]:
        """Write a model, let it read the text, print and return the figures."""
        path = self.folder / "quantized.gguf"
        ggufkit.write(quantized, path, threads=self.options.threads)
        figures = compared(self.base, self.predictions_of(path))
        bits = bits_per_weight(quantized.tensors.values()) or 0
        print(
            f"{label:<22} {path.stat().st_size:>12,} {bits:>6.3f} {figures['perplexity']:>9.4f} "
            f"{figures['divergence']:>9.5f} {100 * figures['same']:>7.2f}%",
            flush=True,
        )
        return {"label": label, "nbytes": path.stat().st_size, **figures}

    def beside_recipes(self) -> Iterator[dict[str, object]]:
        """Compare each recipe with a model of its size."""
        print(f"{'':<22} {'bytes':>12} {'bits':>6} {'ppl':>9} {'KL':>9} {'same':>8}")
        yield self.result("unquantized", self.model)
        for recipe in self.options.recipes:
            by_recipe = self.result(
                recipe, ggufkit.quantize(self.model, recipe, imatrix=self.imatrix)
            )
            yield by_recipe
            start = time.perf_counter()
            nbytes = int(str(by_recipe["nbytes"]))
            types = ggufkit.target(self.model, nbytes=nbytes, imatrix=self.imatrix)
            seconds = time.perf_counter() - start
            quantized = ggufkit.quantize(self.model, types=types, imatrix=self.imatrix)
            yield self.result(f"target, {seconds:.0f} s", quantized) | {"recipe": recipe}

    def sensitivity(self) -> Iterator[dict[str, object]]:
        """Quantize one kind of tensor at a time."""
        for kind in KINDS:
            names = [name for name in self.model.tensors if kind in name and "norm" not in name]
            quantized = ggufkit.quantize(
                self.model, types=dict.fromkeys(names, PROBE), imatrix=self.imatrix
            )
            result = self.result(kind, quantized)
            error = sum(self._error(name) for name in names)
            yield result | {
                "error": error,
                "sensitivity": len(names) * float(str(result["divergence"])) / error,
            }

    def _error(self, name: str) -> float:
        tensor = self.model.tensors[name]
        weights = self.imatrix.weights(name, tensor.shape)
        (option,) = measure(tensor, [tensor_type(PROBE)], weights)
        return option.loss


def main(arguments: Iterable[str] | None = None) -> None:
    """Run one of the comparisons."""
    parser = argparse.ArgumentParser(description="Compare quantizing to a size with recipes.")
    parser.add_argument("--model", type=Path, help="an F16 model instead of SmolLM2")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--chunks", type=int, default=4, help="chunks of the text that count")
    parser.add_argument("--context", type=int, default=256, help="tokens of a chunk")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--folder", type=Path, help="where to keep what is made")
    parser.add_argument("--sensitivity", action="store_true", help="measure kinds of tensors")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options, options.folder or Path(temporary))
        results = list(bench.sensitivity() if options.sensitivity else bench.beside_recipes())
    if options.sensitivity:
        for result in results:
            print(f"{result['label']:<16} {result['sensitivity']:.4f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
