"""Models that other programs keep: Hugging Face's cache, llama.cpp's, Ollama's and LM Studio's.

Each has a name that every command takes: "hf:user/repo:Q4_K_M", "llama.cpp:FILE",
"ollama:llama3.2:1b", "lmstudio:user/repo:Q8_0". Nothing is downloaded. Caches
may be malformed: every name and number is checked.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ggufkit.errors import MissingModelError
from ggufkit.models.hub.names import is_hub_name
from ggufkit.models.hub.repository import (
    PREFERRED,
    SIDECARS,
    CachedModel,
    files_in,
    model_sets,
    snapshot_of,
)
from ggufkit.remote.hub.settings import cache_folder, cache_home, folder_of
from ggufkit.system.text_file import Most, read_small

SHOWN: Final = 8  # names in a message
OLLAMA_REGISTRY: Final = ("registry.ollama.ai", "library")  # left out of names
OLLAMA_MODEL: Final = "application/vnd.ollama.image.model"
_DIGEST: Final = re.compile(r"sha256[:-]([0-9a-f]{64})")


def find_models(pattern: str = "") -> tuple[CachedModel, ...]:
    """Return the models in all caches whose name contains `pattern`, in any case, by name.

    With "hf://org/repo" they are the models of that repository on the Hub, in its order; one
    request asks for them. `open` takes these names. Damaged entries are left out.
    """
    if is_hub_name(pattern):
        from ggufkit.models.hub.find import hub_models  # noqa: PLC0415 (networks take long to import)

        return tuple(hub_models(pattern))
    models_found = [model for models in SOURCES.values() for model in models()]
    text = pattern.casefold()
    return tuple(
        sorted((m for m in models_found if text in m.name.casefold()), key=lambda m: m.name)
    )


def is_name(path: str | os.PathLike[str]) -> bool:
    """Whether `path` names a cached model: it has the prefix of a cache, and is not a file."""
    text = os.fspath(path)
    source, colon, rest = text.partition(":")
    return bool(colon and rest) and source in SOURCES and not os.path.lexists(text)


def resolve(path: Path) -> Path:
    """Return where the model called `path` lies; any other path is itself.

    A tag after the last colon is looked up in file names as llama.cpp does; without a tag it is the
    only model of a repository, else its Q4_K_M, else its Q8_0. Raises MissingModelError, which
    lists the names that exist.
    """
    if not is_name(path):
        return path
    name = path.as_posix()
    models = tuple(SOURCES[name.partition(":")[0]]())
    for match in (_of_that_name, _of_that_tag, _of_that_repository):
        cached = match(name, models)
        if cached:
            return cached.path
    names = [model.name for model in models]
    near = [k for k in names if k.casefold().startswith(name.casefold())]
    suggestions = (near or difflib.get_close_matches(name, names, SHOWN))[:SHOWN]
    remedy = (
        f"Did you mean {', '.join(suggestions)}"
        if suggestions
        else "`ggufkit list` shows all cached models"
    )
    raise MissingModelError(f"no cached model is called {name}", remedy=remedy)


def _of_that_name(name: str, models: tuple[CachedModel, ...]) -> CachedModel | None:
    short = name.casefold().removesuffix(":latest")
    return next((m for m in models if m.name.casefold() in (short, f"{short}.gguf")), None)


def _of_that_tag(name: str, models: tuple[CachedModel, ...]) -> CachedModel | None:
    repository, _, tag = name.rpartition(":")
    tag_pattern = re.compile(re.escape(tag) + "[.-]", re.IGNORECASE)
    return next(
        (m for m in _in_repository(repository, models) if tag_pattern.search(m.path.name)), None
    )


def _of_that_repository(name: str, models: tuple[CachedModel, ...]) -> CachedModel | None:
    cached = _in_repository(name, models)
    if len(cached) == 1:
        return cached[0]
    for tag in PREFERRED:
        if tagged := _of_that_tag(f"{name}:{tag}", cached):
            return tagged
    return None


def _in_repository(name: str, models: tuple[CachedModel, ...]) -> tuple[CachedModel, ...]:
    prefixes = (f"{name}:".casefold(), f"{name}/".casefold())
    in_repository = (model for model in models if model.name.casefold().startswith(prefixes))
    return tuple(m for m in in_repository if not any(part in m.path.name for part in SIDECARS))


# Repositories: folders that hold a model's files in several encodings.
def _repository(prefix: str, folder: Path) -> Iterator[CachedModel]:
    sets = model_sets(files_in(folder))
    counts = Counter(model.quant for model in sets)
    for model in sets:
        is_unique = model.quant and counts[model.quant] == 1
        name = f"{prefix}:{model.quant}" if is_unique else f"{prefix}/{model.path}"
        yield CachedModel(name, folder / model.path, model.nbytes)


def _folders(path: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError, ValueError):  # a name from a file may hold NUL
        yield from sorted(entry for entry in path.iterdir() if entry.is_dir())


def _hugging_face() -> Iterator[CachedModel]:
    for cache in dict.fromkeys((cache_folder(), folder_of("LLAMA_CACHE"))):
        for repository in _folders(cache) if cache else ():
            kind, *names = repository.name.split("--")
            snapshot = _snapshot(repository)
            if kind == "models" and names and snapshot:
                yield from _repository("hf:" + "/".join(names), snapshot)


def _snapshot(repository: Path) -> Path | None:
    """Return the folder of the main branch, or of another branch if there is no main."""
    with contextlib.suppress(OSError):
        heads = sorted((repository / "refs").iterdir(), key=lambda ref: ref.name != "main")
        snapshots = (snapshot_of(repository, ref.name) for ref in heads)
        return next(filter(None, snapshots), None)
    return None


def _llama_cpp() -> Iterator[CachedModel]:
    system = Path.home() / "Library" / "Caches" if sys.platform == "darwin" else cache_home()
    folder = folder_of("LLAMA_CACHE") or (folder_of("LOCALAPPDATA") or system) / "llama.cpp"
    for model in model_sets(files_in(folder)):
        if "/" not in model.path:
            yield CachedModel(f"llama.cpp:{model.path}", folder / model.path, model.nbytes)


def _ollama() -> Iterator[CachedModel]:
    shared = Path("/usr/share/ollama/.ollama/models")  # where the Linux service keeps them
    for folder in (folder_of("OLLAMA_MODELS") or Path.home() / ".ollama" / "models", shared):
        manifests = folder / "manifests"
        for place, _, names in os.walk(manifests):
            for name in names:
                path = Path(place, name)
                yield from _ollama_model(path.relative_to(manifests).parts, path, folder / "blobs")


def _ollama_model(parts: tuple[str, ...], manifest: Path, blobs: Path) -> Iterator[CachedModel]:
    *repository, tag = parts
    for prefix in OLLAMA_REGISTRY:
        repository = repository[1:] if repository[:1] == [prefix] else repository
    digest = _model_digest(manifest)
    if digest and repository:
        blob, ending = blobs / f"sha256-{digest}", "" if tag == "latest" else f":{tag}"
        with contextlib.suppress(OSError):  # a link may lead nowhere
            yield CachedModel(f"ollama:{'/'.join(repository)}{ending}", blob, blob.stat().st_size)


def _model_digest(manifest: Path) -> str | None:
    content: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(read_small(manifest, Most.CACHE_MANIFEST))
    layers = content.get("layers") if isinstance(content, dict) else None
    for layer in layers if isinstance(layers, Sequence) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == OLLAMA_MODEL:
            match = _DIGEST.fullmatch(str(layer.get("digest")))
            return match[1] if match else None
    return None


def _lm_studio() -> Iterator[CachedModel]:
    home = ""
    with contextlib.suppress(OSError, ValueError):
        pointer = Path.home() / ".lmstudio-home-pointer"
        home = read_small(pointer, Most.POINTER).decode().strip()
    for folder in (Path(home or Path.home() / ".lmstudio"), cache_home() / "lm-studio"):
        for user in _folders(folder / "models"):
            for repository in _folders(user):
                yield from _repository(f"lmstudio:{user.name}/{repository.name}", repository)


SOURCES: Final[dict[str, Callable[[], Iterator[CachedModel]]]] = {
    "hf": _hugging_face,
    "llama.cpp": _llama_cpp,
    "ollama": _ollama,
    "lmstudio": _lm_studio,
}
