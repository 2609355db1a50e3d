"""The model that a release starts from: a GGUF file, a checkpoint, or a repository on the Hub."""

from __future__ import annotations

import contextlib
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ggufkit.conversion.convert import convert
from ggufkit.errors import RemoteMissingError
from ggufkit.format.file_name import parse_name, parse_shard_name
from ggufkit.format.file_types import FILE_TYPES
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import Strings
from ggufkit.models.hub.names import is_hub_name, parse_hub_name
from ggufkit.models.model import Model
from ggufkit.models.open import open as open_model
from ggufkit.models.remote_resolvers import is_remote
from ggufkit.output.layout import Layout, layout
from ggufkit.quantization.file_keys import file_type_of
from ggufkit.release.journal import identity_of
from ggufkit.release.publish import REPOSITORY
from ggufkit.release.settings import Settings
from ggufkit.remote.hub.hub import Repository
from ggufkit.remote.hub.settings import ENDPOINT
from ggufkit.system.threads import Notify

HUB: Final = f"{ENDPOINT}/"
MTP: Final = "mtp"  # among drafts: the layers of the source that predict further tokens
_GENERAL: Final = ("name", "architecture", "license")


@dataclass(frozen=True)
class ReleaseSource:
    """A source by its name, as a user writes it."""

    name: str
    settings: Settings
    say: Notify

    @property
    def is_local_file(self) -> bool:
        """Whether it is a GGUF file on this disk, which is used where it is."""
        return not is_remote(self.name) and Path(self.name).is_file()

    @property
    def stem(self) -> str:
        """What its files are called, without type and number of a shard."""
        if is_hub_name(self.name):
            return parse_hub_name(self.name).repository.rpartition("/")[2].removesuffix("-GGUF")
        path = Path(self.name.rpartition("/")[2] if is_remote(self.name) else self.name)
        name = (path.resolve() if path.is_dir() else path).name
        shard = parse_shard_name(name)
        stem = shard[0] if shard else name.removesuffix(".gguf")
        end = parse_name(f"{stem}.gguf").encoding
        return re.sub(f"[-._]{re.escape(end)}$", "", stem, flags=re.IGNORECASE) if end else stem

    @property
    def identity(self) -> object:
        """What changes if the source changes."""
        if is_hub_name(self.name):
            hub_name = parse_hub_name(self.name)
            return Repository(hub_name.repository, hub_name.revision).files()
        return self.name if is_remote(self.name) else identity_of(Path(self.name))

    def open(self) -> Model:
        """Return the model, a checkpoint converted lazily; raises as `open` and `convert` do."""
        if self.is_checkpoint:
            settings = self.settings
            mtp = False if MTP in settings.drafts else None
            return convert(self.name, outtype=settings.outtype, mtp=mtp, say=self.say)
        return open_model(self.name)

    def layouts(self, model: Model) -> list[Layout]:
        """Return the layout of the opened model's file; none if it is used where it is."""
        name = f"{self.settings.name}-{type_of(model)}.gguf"
        shard_size = self.settings.shard_bytes
        return [] if self.is_local_file else [layout(model, name, shard_size=shard_size)]

    @functools.cached_property
    def is_checkpoint(self) -> bool:
        """Whether it is to be converted; a name on the Hub is asked for once."""
        if not is_remote(self.name):
            return Path(self.name).is_dir() and not any(Path(self.name).glob("*.gguf"))
        if is_hub_name(self.name) and not parse_hub_name(self.name).tag:
            with contextlib.suppress(RemoteMissingError):
                open_model(self.name).close()
                return False
            return True
        return False


def type_of(model: Model) -> str:
    """Return the name of a model's file type, for the name of its file."""
    number = file_type_of(model.metadata)
    kinds = (t.type.name for t in model.tensors.values() if len(t.shape) > 1)
    return FILE_TYPES.get(-1 if number is None else number) or next(kinds, "F32")


def about(source: ReleaseSource, metadata: Metadata) -> dict[str, Any]:
    """Return what the card says of the original, as far as the source says it.

    The key general.base_model is about what the original itself was trained from.
    """
    facts: dict[str, Any] = {key: metadata.text(f"general.{key}", "") for key in _GENERAL}
    urls = (metadata.text(f"general.{key}", "") for key in ("source.repo_url", "repo_url"))
    page = next((url for url in urls if url.startswith(HUB)), "")
    own = is_hub_name(source.name) and source.is_checkpoint
    name = parse_hub_name(source.name).repository if own else page.removeprefix(HUB)
    facts["base_model"] = name if REPOSITORY.fullmatch(name) else ""
    for key in ("languages", "tags"):
        value = metadata.get(f"general.{key}")
        facts[key] = list(value) if isinstance(value, Strings) else []
    return facts
