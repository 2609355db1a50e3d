"""The files that go with the model of a release: its projector, draft models and LoRA adapters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ggufkit.conversion.convert import convert
from ggufkit.errors import CheckpointError, GGUFError, ValueTypeError
from ggufkit.format.values import Strings
from ggufkit.lora.convert_lora import convert_lora
from ggufkit.lora.merge_lora import merge_lora
from ggufkit.models.hub.names import is_hub_name, parse_hub_name
from ggufkit.models.hub.repository import SIDECARS
from ggufkit.models.model import Model
from ggufkit.models.open import open as open_model
from ggufkit.output.layout import Layout, layout
from ggufkit.release.journal import Facts
from ggufkit.release.source import MTP, ReleaseSource, type_of

PROJECTOR: Final = "projector"
DRAFT: Final = "draft"
ADAPTER: Final = "adapter"
DSPARK: Final = "dspark"  # the draft model that checkpoints of DeepSeek V4 contain
_TOKENS: Final = "tokenizer.ggml.tokens"
# What llama.cpp compares of two vocabularies, in common/speculative.cpp.
_FIRST_TOKEN: Final = 5
_MOST_MORE_TOKENS: Final = 128


@dataclass(frozen=True)
class Sidecar:
    """A file that goes with a model; `name` is what the settings call it, empty for a projector."""

    kind: str
    name: str
    model: ReleaseSource

    @property
    def _source(self) -> ReleaseSource:
        return ReleaseSource(self.name, self.model.settings, self.model.say)

    @property
    def _is_part(self) -> bool:
        return self.kind == PROJECTOR or (self.kind == DRAFT and self.name in (MTP, DSPARK))

    @property
    def stem(self) -> str:
        """What its file is called, without prefix and type."""
        return self.model.settings.name if self._is_part else self._source.stem

    @property
    def step(self) -> str:
        """The name of the step that makes it."""
        return " ".join(filter(None, (self.kind, self.name if self._is_part else self.stem)))

    @property
    def inputs(self) -> tuple[object, ...]:
        """What changes if the file changes."""
        own = "" if self._is_part else self._source.identity
        settings = self.model.settings
        types = settings.outtype, settings.draft_outtype
        return self.kind, own, self.model.identity, types, self.stem, settings.shard_bytes

    def open(self) -> Model | None:
        """Return it as a lazy model, None for a projector that the checkpoint does not have.

        Raises as `convert`, `convert_lora` and `open` do.
        """
        whole, outtype = self.model, self.model.settings.draft_outtype
        if self.kind == PROJECTOR:
            return _projector(whole)
        if not self._is_part and not self._source.is_checkpoint:
            return open_model(self.name)
        if not whole.is_checkpoint and (self.kind == ADAPTER or self._is_part):
            raise ValueTypeError(
                f"{self.name} can only be converted together with a checkpoint, not with "
                f"{whole.name}",
                remedy="Convert it first, and name its GGUF file",
            )
        if self.kind == ADAPTER:
            return convert_lora(self.name, base=whole.name, say=whole.say)
        if self._is_part:
            mtp, dspark = self.name == MTP or None, self.name == DSPARK
            return convert(whole.name, outtype=outtype, mtp=mtp, dspark=dspark, say=whole.say)
        target = whole.name if whole.is_checkpoint else None
        return convert(self.name, outtype=outtype, target=target, say=whole.say)

    def _prefix(self, model: Model) -> str:
        if self.kind == PROJECTOR:
            return "mmproj"
        if self.kind == ADAPTER:
            return "lora"
        own = self.name if self._is_part else model.architecture
        return own if f"{own}-" in SIDECARS else DRAFT

    def runs_alone(self, model: Model) -> bool:
        """Whether it is a whole model, which llama.cpp can run."""
        return self.kind == DRAFT and self._prefix(model) == DRAFT

    def file(self, model: Model) -> str:
        """Return the name of its file, before it is split; `open` returned `model`.

        By these names llama.cpp's `-hf` takes no sidecar for a rung.
        """
        prefix = self._prefix(model)
        end = "" if prefix in (DRAFT, "lora") else f"-{type_of(model)}"
        return f"{prefix}-{self.stem}{end}.gguf"

    def facts(self, model: Model) -> Facts:
        """Return what the card says of it: its kind, where it comes from, and how it drafts."""
        is_remote = not self._is_part and is_hub_name(self.name)
        prefix = self._prefix(model)
        return {
            "kind": self.kind,
            "origin": parse_hub_name(self.name).repository if is_remote else "",
            "drafting": f"draft-{'simple' if prefix == DRAFT else prefix}",
        }

    def require_fit(self, base: Model, model: Model) -> None:
        """Raise AdapterError or ValueTypeError for what llama.cpp cannot use with `base`."""
        if self.kind == ADAPTER:
            merge_lora(base, model, outtype="f32")
        if self.kind == DRAFT and not self._is_part:
            if (kind := model.metadata.text("general.type", "model")) != "model":
                raise ValueTypeError(
                    f"{self.name} is not a model: its general.type is {kind}",
                    remedy="Name a model as draft, and adapters as adapters",
                )
            if not _have_same_tokens(base, model):
                raise ValueTypeError(
                    f"{self.name} cannot draft for this model: its tokens are other ones",
                    remedy="Name a draft model with the same tokenizer",
                )


def sidecars_of(source: ReleaseSource) -> list[Sidecar]:
    """Return what the settings ask for; ValueTypeError if two would have the same name."""
    settings = source.settings
    names = [(ADAPTER, name) for name in settings.adapters]
    names = [*((DRAFT, name) for name in settings.drafts), *names]
    if settings.projector and source.is_checkpoint:
        names = [(PROJECTOR, ""), *names]
    sidecars = [Sidecar(kind, name, source) for kind, name in names]
    if len({sidecar.step.casefold() for sidecar in sidecars}) < len(sidecars):
        raise ValueTypeError(
            "two draft models or two adapters have the same name", remedy="Rename one of them"
        )
    return sidecars


def layouts_of(sidecars: Sequence[Sidecar], base: Model) -> Iterator[Layout]:
    """Yield the layout of each file; raise what `open` and `require_fit` raise.

    A projector that cannot be converted is left out, because nobody named it.
    """
    for sidecar in sidecars:
        try:
            model = sidecar.open()
        except GGUFError:
            if sidecar.kind != PROJECTOR:
                raise
            continue
        if model is not None:
            with model:
                sidecar.require_fit(base, model)
                size = sidecar.model.settings.shard_bytes
                yield layout(model, sidecar.file(model), shard_size=size)


def _projector(source: ReleaseSource) -> Model | None:
    try:
        return convert(source.name, outtype=source.settings.outtype, mmproj=True)
    except CheckpointError as error:
        if "no projector" in error.message:
            return None
        raise


def _have_same_tokens(base: Model, draft: Model) -> bool:
    """Whether llama.cpp lets a model draft for another one; true if one has no tokens."""
    first, second = (model.metadata.get(_TOKENS) for model in (base, draft))
    if not isinstance(first, Strings) or not isinstance(second, Strings):
        return True
    count = min(len(first), len(second))
    more = max(len(first), len(second)) - count
    texts = (list(tokens)[_FIRST_TOKEN:count] for tokens in (first, second))
    return more <= _MOST_MORE_TOKENS and next(texts) == next(texts)
