"""The verbs of a model: `model.quantize("Q4_K_M")` is `ggufkit.quantize(model, "Q4_K_M")`.

The functions are in higher packages, so a verb imports its function when it is called. Their
parameters are the function's, which describes them; a test binds the two.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path
    from typing import IO

    from tokenizers import Tokenizer
    from typing_extensions import Unpack

    from ggufkit.edits.select import Grafts, Names
    from ggufkit.format.file_name import FileName
    from ggufkit.format.types import TensorType
    from ggufkit.frameworks.chat_template import ChatTemplate
    from ggufkit.imatrix.matrix import Imatrix
    from ggufkit.inspection.diff import Difference
    from ggufkit.inspection.digest import Digests
    from ggufkit.inspection.estimate import Estimate
    from ggufkit.models.any_model import AnyModel
    from ggufkit.models.model import Model
    from ggufkit.output.layout import LayoutOptions
    from ggufkit.quantization.losses.sensitivities import Sensitivity
    from ggufkit.quantization.plan import Plan
    from ggufkit.quantization.quantize import QuantizeOptions
    from ggufkit.quantization.recipes import Recipe
    from ggufkit.quants.codec import AnyType
    from ggufkit.quants.search import Search
    from ggufkit.rules.findings import Finding
    from ggufkit.system.descriptors import AnyPath
    from ggufkit.system.threads import Notify, Progress

Method = TypeVar("Method", bound=Callable[..., Any])


def _verb(signature: Method) -> Method:
    """Return the method with this signature that calls the public function of its name."""

    @functools.wraps(signature)
    def verb(*args: Any, **options: Any) -> Any:  # noqa: ANN401 (as the function has them)
        return getattr(importlib.import_module("ggufkit"), signature.__name__)(*args, **options)

    return cast("Method", verb)


class ModelVerbs:
    """The functions that take a model first, as methods."""

    @_verb
    def chat_template(self) -> ChatTemplate:
        """Return the chat templates of this model: `ggufkit.chat_template`."""

    @_verb
    def check(
        self,
        *,
        data: bool = False,
        names: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> list[Finding]:
        """Return what is wrong with this model: `ggufkit.check`."""

    @_verb
    def conventional_name(self) -> FileName:
        """Return the file name that the naming convention gives: `ggufkit.conventional_name`."""

    @_verb
    def diff(
        self,
        after: AnyModel,
        *,
        data: bool = True,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Difference:
        """Return how `after` differs from this model: `ggufkit.diff`."""

    @_verb
    def digest(
        self,
        algorithms: str | Iterable[str] = ("xxh64",),
        *,
        tensors: bool = True,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Digests:
        """Return digests of the metadata and the tensors: `ggufkit.digest`."""

    @_verb
    def edit(
        self,
        *,
        set: Mapping[str, object] | None = None,
        types: Mapping[str, str] | None = None,
        drop_keys: str | Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        chat_template: str | None = None,
        special_tokens: Mapping[str, int | str] | None = None,
        add_tags: str | Iterable[str] = (),
        reserve: int | None = None,
        force: bool = False,
    ) -> Model:
        """Return this model with changed metadata: `ggufkit.edit`."""

    @_verb
    def estimate(
        self,
        *,
        context: int | None = None,
        cache_type: str | TensorType = "F16",
        value_cache_type: str | TensorType | None = None,
        micro_batch: int = 512,
        sequences: int = 1,
        unified: bool = False,
        flash_attention: bool = True,
        full_window: bool = False,
    ) -> Estimate:
        """Return the memory that llama.cpp needs to run this model: `ggufkit.estimate`."""

    @_verb
    def export(
        self,
        folder: AnyPath,
        *,
        dtype: str = "auto",
        shard_size: int | None = None,
        names: str = "publisher",
        arch_path: Sequence[Path] = (),
        threads: int | None = None,
        progress: Progress | None = None,
        say: Notify | None = None,
    ) -> list[Path]:
        """Write a Hugging Face folder: `ggufkit.export`."""

    @_verb
    def plan(
        self,
        recipes: str | Recipe | Iterable[str | Recipe] | None = None,
        *,
        imatrix: Imatrix | AnyPath | None = None,
        search: Search | None = None,
    ) -> list[Plan]:
        """Return the size of this model in each recipe: `ggufkit.plan`."""

    @_verb
    def quantize(
        self,
        recipe: str | int | Recipe | None = None,
        *,
        allow_requantize: bool = False,
        **options: Unpack[QuantizeOptions],
    ) -> Model:
        """Return this model quantized: `ggufkit.quantize`."""

    @_verb
    def report(
        self,
        path: AnyPath,
        *,
        others: AnyModel | Iterable[AnyModel] = (),
        evaluation: AnyPath | None = None,
        data: bool = True,
        clobber: bool = True,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Path:
        """Write what there is to know about this model as a page: `ggufkit.report`."""

    @_verb
    def select(
        self,
        *,
        keep: Names = (),
        drop: Names = (),
        prune: Iterable[int] = (),
        rename: Names = (),
        graft: Grafts = (),
        keep_keys: Names = (),
        drop_keys: Names = (),
        graft_keys: Grafts = (),
        vocab_only: bool = False,
        tensors: bool = True,
    ) -> Model:
        """Return this model with some of its tensors and keys: `ggufkit.select`."""

    @_verb
    def target(
        self,
        *,
        nbytes: int | None = None,
        bpw: float | None = None,
        imatrix: Imatrix | AnyPath | None = None,
        sensitivity: Sensitivity | AnyPath | None = None,
        candidates: Iterable[AnyType] | None = None,
        override_kv: Mapping[str, object] | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> dict[str, TensorType]:
        """Return the type of each tensor that fits a size: `ggufkit.target`."""

    @_verb
    def tokenizer(self, *, say: Notify | None = None) -> Tokenizer:
        """Return the tokenizer of this model: `ggufkit.tokenizer`."""

    @_verb
    def write(
        self,
        path: AnyPath | IO[bytes],
        *,
        threads: int | None = None,
        progress: Progress | None = None,
        executor: Executor | None = None,
        resume: bool = False,
        clobber: bool = True,
        **options: Unpack[LayoutOptions],
    ) -> list[Path]:
        """Write GGUF files: `ggufkit.write`."""
