"""Opens a Hugging Face checkpoint folder: its files, its configuration and its lazy tensors."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ggufkit.conversion.checkpoint.pytorch import read_pytorch
from ggufkit.conversion.checkpoint.safetensors import INDEX, read_tensors
from ggufkit.errors import MISFORMED, CheckpointError, GGUFError, brief, first_names
from ggufkit.models.model import Tensor, Tensors
from ggufkit.models.rows import AnyFile
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.mapped_file import MappedFile
from ggufkit.system.readers_limit import ReadersLimit

EXTRAS: Final = "ggufkit.json"  # in exported checkpoints: what the other files cannot store
PYTORCH: Final = (".bin", ".pth")
# What tokenizers are in.
TOKENIZER_SUFFIXES: Final = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".vocab", ".bpe")
VERSIONED: Final = ".model.v"  # in the names of Mistral's SentencePiece models
MASK_EMBEDDING: Final = "mask_embedding.pt"  # of a draft model, for the token that marks drafts
PARAMS: Final = "params.json"  # the configuration in Mistral's own format
Forms = Sequence[tuple[str, str, str]]
TensorFiles = Mapping[str, RangeFile | Path]  # by their names in the folder
# Index, prefix and suffix of the names of files with tensors; the first row that exists counts.
FORMS: Final = (
    (INDEX, "model", ".safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model", ".bin"),
    ("pytorch_model.pth.index.json", "", ".pth"),
)
MISTRAL_FORMS: Final = (
    ("consolidated.safetensors.index.json", "consolidated", ".safetensors"),
)  # fmt: skip
# Limits for files without tensors: a configuration takes a few KiB, a tokenizer.json or an
# index tens of MiB. Parsed, a hostile file may take twenty times its bytes.
MAX_CONFIG_BYTES: Final = 16 << 20
MAX_FILE_BYTES: Final = 128 << 20
# Where InternVL, GLM-ASR, Qwen's omni models, DeepSeek OCR and LFM2 Audio have the configuration
# of their text model.
_TEXT_CONFIGS: Final = (
    "llm_config", "lm_config", "thinker_config.text_config", "language_config", "lfm",
)  # fmt: skip
# Checkpoints without config.json, by a tensor that only they have: their architecture files find
# the sizes in the shapes of the tensors.
_BARE: Final = {"flow_lm.bos_emb": {"architectures": ["PocketTTSModel"], "model_type": "pockettts"}}
_QUANT_METHODS: Final = {"fp8_e4m3": "fp8"}  # by their names in params.json
CONFIGS: Final = ("config.json", PARAMS, "generation_config.json", "modules.json", "README.md")


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder; only files in it are read or, with `follow_links`, files that it links to.

    Links into the Hugging Face cache that the folder belongs to are always followed.
    """

    folder: Path
    follow_links: bool = field(default=False, kw_only=True)

    def path(self, name: str) -> Path | None:
        """Return the path of a file, None if missing.

        Raises CheckpointError for a name or a link that leads out of the folder.
        """
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\0" in name or "\\" in name:
            raise CheckpointError(f"{brief(name)} leads out of the folder {self.folder}")
        path = self.folder / parts
        if not path.is_file():
            return None
        home, target = self.folder.resolve(), path.resolve()
        allowed = (home, home.parent.parent / "blobs")
        if self.follow_links or any(target.is_relative_to(folder) for folder in allowed):
            return path
        raise CheckpointError(
            f"{path} is a link that leads out of the folder, to {target}",
            remedy="If you made the link yourself, use `ggufkit convert --follow-links`",
        )

    def content(self, name: str) -> bytes | None:
        """Return a file's bytes, None if missing; CheckpointError above the limit for its kind."""
        path = self.path(name)
        if path is None:
            return None
        limit = MAX_CONFIG_BYTES if PurePosixPath(name).name in CONFIGS else MAX_FILE_BYTES
        with path.open("rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise CheckpointError(
                f"{path} has more than {limit:,} bytes, which no such file needs",
                remedy="Fetch it again",
            )
        return data

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the sorted names of the files with a suffix in a folder of the checkpoint."""
        return sorted(path.name for path in (self.folder / folder).glob(f"*{suffix}"))

    def text(self, name: str) -> str | None:
        """Return a file's text, None if missing; CheckpointError if it is not UTF-8."""
        data = self.content(name)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.folder / name} is not UTF-8: {error}") from None

    def json(self, name: str) -> dict[str, Any] | None:
        """Return a file's JSON object, None if missing; CheckpointError if it is something else."""
        text = self.text(name)
        if text is None:
            return None
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.folder / name} is not JSON: {error}") from None
        if not isinstance(content, dict):
            raise CheckpointError(f"{self.folder / name} does not contain a JSON object")
        return content


@dataclass(frozen=True)
class Checkpoint(CheckpointFolder):
    """An opened checkpoint: `config` is config.json with `text_config`, `tensors` are lazy."""

    config: dict[str, Any]
    tensors: Tensors
    files: tuple[AnyFile, ...] = field(default=(), repr=False)
    remote_files: TensorFiles = field(default_factory=dict, repr=False)
    target: Checkpoint | None = field(default=None, repr=False)  # of a draft model

    @property
    def readers_limit(self) -> ReadersLimit:
        """Who may read outputs made from it: users who may read all of its files."""
        others = (self.target.folder,) if self.target else ()
        folders = {self.folder, self.tokenizer_folder, *others}
        files = (path for folder in folders for path in folder.iterdir())
        return ReadersLimit.of(path.stat() for path in files if path.is_file())

    @property
    def tokenizer_folder(self) -> Path:
        """The folder with the tokenizer: in a pipeline of diffusers, one next to the encoder's."""
        folder = self.folder.resolve()
        tokenizer = folder.parent / folder.name.replace("text_encoder", "tokenizer")
        is_part = tokenizer != folder and (folder.parent / "model_index.json").is_file()
        return tokenizer if is_part and tokenizer.is_dir() else self.folder

    def close(self) -> None:
        """Close the files of tensors."""
        for file in self.files:
            file.close()


def open_checkpoint(  # noqa: PLR0913 (where the files are, and which)
    folder: AnyPath,
    remote_files: TensorFiles | None = None,
    *,
    follow_links: bool = False,
    may_lack_tensors: bool = False,
    mistral_format: bool = False,
    tensors: Tensors | None = None,
) -> Checkpoint:
    """Open a folder with config.json and safetensors or PyTorch files, lazily.

    `remote_files` are files of tensors that belong to the folder but are on a server, by name.
    `follow_links` allows links in the folder that lead out of it. With `may_lack_tensors` a folder
    without files of tensors, or with only some of them, can be opened. With `mistral_format` the
    configuration is params.json, and the tensors are in consolidated*.safetensors. `tensors`
    take the place of files of tensors: those of a checkpoint in memory, or none at all.

    Tensors come in llama.cpp's order: by file, then by name, or in the order of a PyTorch file.
    Raises CheckpointError, whose `problems` list everything wrong with the files, and OSError as
    `open` does.
    """
    place = CheckpointFolder(as_path(folder), follow_links=follow_links)
    if not place.folder.is_dir():
        raise CheckpointError(
            f"{place.folder} is not a folder", remedy="Give the folder of a checkpoint"
        )
    config = _mistral_config(place) if mistral_format else place.json("config.json")
    forms = MISTRAL_FORMS if mistral_format else FORMS
    with contextlib.ExitStack() as opened:
        stored, files, problems = (
            ([*tensors.values()], [], [])
            if tensors is not None
            else _tensors(place, remote_files or {}, opened, forms)
        )
        config = _recognized(place, stored) if config is None else config
        if problems and not may_lack_tensors:
            raise CheckpointError(f"the checkpoint {place.folder} is incomplete", problems)
        opened.pop_all()
    return Checkpoint(
        place.folder, with_text_config(config), Tensors(stored), tuple(files), remote_files or {},
        follow_links=follow_links,
    )  # fmt: skip


def _recognized(place: CheckpointFolder, tensors: Iterable[Tensor]) -> dict[str, Any]:
    for tensor in tensors:
        if tensor.name in _BARE:
            return dict(_BARE[tensor.name])
    if place.path(PARAMS) and _parts(place.names("", ""), MISTRAL_FORMS)[1]:
        raise CheckpointError(
            f"{place.folder} has no config.json, but a model in Mistral's own format",
            remedy="Use `ggufkit convert --mistral-format`",
        )
    raise CheckpointError(
        f"{place.folder} has no config.json", remedy="Give the folder of the model"
    )


def _mistral_config(place: CheckpointFolder) -> dict[str, Any]:
    params = place.json(PARAMS)
    if params is None:
        raise CheckpointError(
            f"{place.folder} has no {PARAMS}",
            remedy="Leave out the option for Mistral's own format (mistral_format=True), to read "
            "config.json",
        )
    config = {**params, "architectures": [PARAMS]}
    if kind := params.get("quantization"):
        kind = kind.get("qformat_weight") if isinstance(kind, Mapping) else kind
        method = _QUANT_METHODS.get(kind, kind) if isinstance(kind, str) else brief(kind)
        config["quantization_config"] = {"quant_method": method}
    return config


def with_text_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with its text model in `text_config`, also if it has another name."""
    for path in _TEXT_CONFIGS:
        part = _inner(config, path)
        if isinstance(part, Mapping):
            config = {**config, "text_config": part}
    return config


def published_text_config(config: Mapping[str, Any]) -> Any:  # noqa: ANN401 (as JSON is)
    """Return `text_config`, None if config.json has another name for it."""
    part = config.get("text_config")
    return None if any(part is _inner(config, path) for path in _TEXT_CONFIGS) else part


def _inner(config: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 (as JSON is)
    part: Any = config
    for name in path.split("."):
        part = part.get(name) if isinstance(part, Mapping) else None
    return part


def _tensors(
    place: CheckpointFolder,
    remote_files: TensorFiles,
    opened: contextlib.ExitStack,
    forms: Forms,
) -> tuple[list[Tensor], list[AnyFile], list[str]]:
    index_name, parts = _parts([*place.names("", ""), *remote_files], forms)
    index = place.json(index_name)
    homes = {} if index is None else index.get("weight_map")
    problems: list[str] = []
    if not isinstance(homes, dict) or not all(isinstance(file, str) for file in homes.values()):
        homes, problems = {}, [f"{index_name} has no weight_map of tensors to files"]
    names = sorted(set(homes.values())) if index is not None else parts
    if not names and not problems:
        usual = " or ".join(f"{start}*{end}" for _, start, end in forms[:2])
        problems.append(f"the folder has no {usual} files, and no index of such files")
    files: list[AnyFile] = []
    tensors: dict[str, Tensor] = {}
    for name in names:
        try:
            file = opened_file(name, remote_files.get(name) or place.path(name))
        except CheckpointError as error:
            problems.append(f"{error.message} ({error.remedy})" if error.remedy else error.message)
            continue
        files.append(opened.enter_context(contextlib.closing(file)))
        contents, faults = tensors_in(name, file)
        problems.extend(f"{name}: {fault}" for fault in faults)
        twice = [tensor.name for tensor in contents if tensor.name in tensors]
        if len(twice) == 1:
            problems.append(f"tensor {brief(twice[0])} is in two files")
        elif twice:
            problems.append(f"{len(twice)} tensors are in two files, the first {brief(twice[0])}")
        tensors |= {tensor.name: tensor for tensor in contents}
    if index is not None and not problems:
        problems.extend(_about_index(index_name, homes, tensors))
    return list(tensors.values()), files, problems


def tensors_in(name: str, file: AnyFile) -> tuple[list[Tensor], list[str]]:
    """Return the tensors of an opened file, and what is wrong with it."""
    if not name.endswith(PYTORCH):
        return read_tensors(file)
    if isinstance(file, MappedFile):
        return read_pytorch(file)
    return [], ["PyTorch files are read from the disk only"]


def _parts(names: Iterable[str], forms: Forms) -> tuple[str, list[str]]:
    present = sorted({*names})
    for index, prefix, suffix in forms:
        parts = [name for name in present if name.startswith(prefix) and name.endswith(suffix)]
        if parts or index in present:
            return index, parts
    return forms[0][0], []


def opened_file(name: str, file: RangeFile | Path | None) -> AnyFile:
    """Return an opened file of tensors; CheckpointError if it is missing."""
    if file is None:
        raise CheckpointError(f"the file {name} is missing")
    return MappedFile(file) if isinstance(file, Path) else file


def _about_index(index: str, homes: dict[str, str], tensors: dict[str, Tensor]) -> Iterator[str]:
    for names, what in (
        (homes.keys() - tensors.keys(), "lists tensors that no file contains"),
        (tensors.keys() - homes.keys(), "does not list tensors that the files contain"),
    ):
        if names:
            yield f"{index} {what}: {first_names(sorted(names))} ({len(names)} in all)"


@contextlib.contextmanager
def checking_types(
    contradiction: str, remedy: str = "", kind: type[CheckpointError] = CheckpointError
) -> Iterator[None]:
    """Turn errors from wrongly typed values in files into one that says `contradiction`."""
    try:
        yield
    except GGUFError:
        raise
    except (*MISFORMED, MemoryError) as error:
        what = f"{contradiction} ({error.__class__.__name__}: {error})"
        raise kind(what, remedy=remedy) from error


@contextlib.contextmanager
def shown_as(old: str, new: str) -> Iterator[None]:
    """Let errors of a checkpoint say `new` where they say `old`."""
    try:
        yield
    except CheckpointError as error:
        problems = [problem.replace(old, new) for problem in error.problems]
        headline = error.headline if error.problems else error.message
        raise CheckpointError(
            headline.replace(old, new), problems, remedy=error.remedy.replace(old, new)
        ) from error
