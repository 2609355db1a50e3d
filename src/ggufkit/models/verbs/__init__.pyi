from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import IO

from typing_extensions import Unpack

from ggufkit.edits.select import Grafts, Names
from ggufkit.format.file_name import FileName
from ggufkit.format.types import TensorType
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.inspection.diff import Difference
from ggufkit.inspection.digest import Digests
from ggufkit.inspection.estimate import Estimate
from ggufkit.models.any_model import AnyModel
from ggufkit.models.model import Model
from ggufkit.output.layout import LayoutOptions
from ggufkit.quantization.losses.sensitivities import Sensitivity
from ggufkit.quantization.plan import PlannedSize
from ggufkit.quantization.quantize import QuantizeOptions
from ggufkit.quantization.recipes import Recipe
from ggufkit.quants.codec import AnyType
from ggufkit.quants.search import Search
from ggufkit.rules.findings import Finding
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Progress, Say

class ModelVerbs:
    def check(
        self,
        *,
        data: bool = ...,
        names: bool = ...,
        threads: int | None = ...,
        progress: Progress | None = ...,
    ) -> list[Finding]: ...
    def conventional_name(self) -> FileName: ...
    def diff(
        self,
        after: AnyModel,
        *,
        data: bool = ...,
        threads: int | None = ...,
        progress: Progress | None = ...,
    ) -> Difference: ...
    def digest(
        self,
        algorithms: str | Iterable[str] = ...,
        *,
        tensors: bool = ...,
        threads: int | None = ...,
        progress: Progress | None = ...,
    ) -> Digests: ...
    def edit(
        self,
        *,
        set: Mapping[str, object] | None = ...,
        types: Mapping[str, str] | None = ...,
        unset: str | Iterable[str] = ...,
        rename: Mapping[str, str] | None = ...,
        chat_template: str | None = ...,
        special_tokens: Mapping[str, int | str] | None = ...,
        add_tags: str | Iterable[str] = ...,
        reserve: int | None = ...,
        force: bool = ...,
    ) -> Model: ...
    def estimate(
        self,
        *,
        context: int | None = ...,
        cache_type: str | TensorType = ...,
        value_cache_type: str | TensorType | None = ...,
        micro_batch: int = ...,
        sequences: int = ...,
        unified: bool = ...,
        flash_attention: bool = ...,
        full_window: bool = ...,
    ) -> Estimate: ...
    def export(
        self,
        folder: AnyPath,
        *,
        dtype: str = ...,
        shard_size: int | None = ...,
        arch_path: Sequence[Path] = ...,
        threads: int | None = ...,
        progress: Progress | None = ...,
        say: Say | None = ...,
    ) -> list[Path]: ...
    def plan(
        self,
        recipes: str | Recipe | Iterable[str | Recipe] | None = ...,
        *,
        imatrix: Imatrix | AnyPath | None = ...,
        search: Search | None = ...,
    ) -> list[PlannedSize]: ...
    def quantize(
        self,
        recipe: str | int | Recipe | None = ...,
        *,
        allow_requantize: bool = ...,
        **options: Unpack[QuantizeOptions],
    ) -> Model: ...
    def select(
        self,
        *,
        keep: Names = ...,
        drop: Names = ...,
        prune: Iterable[int] = ...,
        renames: Names = ...,
        graft: Grafts = ...,
        keep_keys: Names = ...,
        drop_keys: Names = ...,
        graft_keys: Grafts = ...,
        vocab_only: bool = ...,
        tensors: bool = ...,
    ) -> Model: ...
    def target(
        self,
        *,
        nbytes: int | None = ...,
        bpw: float | None = ...,
        imatrix: Imatrix | AnyPath | None = ...,
        sensitivity: Sensitivity | AnyPath | None = ...,
        candidates: Iterable[AnyType] = ...,
        override_kv: Mapping[str, object] | None = ...,
        threads: int | None = ...,
        progress: Progress | None = ...,
    ) -> dict[str, TensorType]: ...
    def write(
        self,
        path: AnyPath | IO[bytes],
        *,
        threads: int | None = ...,
        progress: Progress | None = ...,
        executor: Executor | None = ...,
        resume: bool = ...,
        clobber: bool = ...,
        **options: Unpack[LayoutOptions],
    ) -> list[Path]: ...
