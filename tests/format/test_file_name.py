"""File names and names of models, compared with the official package."""

from __future__ import annotations

import re

import pytest
from gguf import utility
from gguf.metadata import Metadata
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.format.file_name import (
    FileName,
    build_name,
    parse_model_id,
    parse_name,
    size_label,
    title,
)

WORDS = (
    "llama Llama 2 3.1 v1.0 iter3 7b 7B 1_6b 7b1 8x7B A3B small mini medium xl XXL chat Instruct "
    "lora q4_0 IQ4_XS bf16 F32 hf base 128K 4k tiny Mixtral 270m smol135M . ß 7K ½ 12"
)
NAMES = st.lists(
    st.sampled_from(["", *WORDS.split()]) | st.text("ab1.vx", max_size=4), max_size=7
).map("-".join)
ORGANIZATIONS = st.sampled_from(["", "meta-llama/", "./", "../a/", "/", "a/b/", " a/"])
PARAMETERS = st.sampled_from([0, 1000, 270_000_000, 7_000_000_000, 8 * 10**12, -5_000_000])
# The convention as its document writes it, which takes exponentially long on some names; and with
# dots in base names and fine-tunes, as gguf-py's `naming_convention` writes them.
CONVENTION = re.compile(
    r"^(?:(?P<sidecar>mmproj|mtp)-)?(?P<basename>[A-Za-z0-9\s.]*(?:(?:-(?:(?:[A-Za-z\s.][A-Za-z0-9\s.]"
    r"*)|(?:[0-9\s.]*)))*))-(?:(?P<size_label>(?:\d+x)?(?:\d+\.)?\d+[A-Za-z](?:-[A-Za-z]+(\d+\.)?\d+"
    r"[A-Za-z]+)?)(?:-(?P<finetune>[A-Za-z0-9\s.-]+))?)?-(?:(?P<version>v\d+(?:\.\d+)*))(?:-"
    r"(?P<encoding>(?!LoRA|vocab)[\w_]+))?(?:-(?P<type>LoRA|vocab))?"
    r"(?:-(?P<shard>\d{5}-of-\d{5}))?\.gguf$",
    re.ASCII,
)
CONVENTIONAL = {
    "Mixtral-8x7B-v0.1-KQ2.gguf": FileName(
        "Mixtral", "8x7B", version="v0.1", encoding="KQ2", conventional=True
    ),
    "Grok-100B-v1.0-Q4_0-00003-of-00009.gguf": FileName(
        "Grok", "100B", version="v1.0", encoding="Q4_0", shard=(3, 9), conventional=True
    ),
    "Hermes-2-Pro-Llama-3-8B-v1.0-F16.gguf": FileName(
        "Hermes-2-Pro-Llama-3", "8B", version="v1.0", encoding="F16", conventional=True
    ),
    "Phi-3-mini-3.8B-ContextLength4k-instruct-v1.0.gguf": FileName(
        "Phi-3-mini", "3.8B-ContextLength4k", "instruct", "v1.0", conventional=True
    ),
    "mtp-Qwen3-27B-v1.0-Q4_K_M.gguf": FileName(
        "Qwen3", "27B", version="v1.0", encoding="Q4_K_M", sidecar="mtp", conventional=True
    ),
    "mmproj-Qwen2-VL-7B-v1.0-F16.gguf": FileName(
        "Qwen2-VL", "7B", version="v1.0", encoding="F16", sidecar="mmproj", conventional=True
    ),
}
WILD = {
    "not-a-known-arrangement.gguf": FileName("not-a-known-arrangement"),
    "Hermes-2-Pro-Llama-3-8B-F16.gguf": FileName("Hermes-2-Pro-Llama-3", "8B", encoding="F16"),
    "Qwen2.5-7B-Instruct-Q4_K_M.gguf": FileName("Qwen2.5", "7B", "Instruct", encoding="Q4_K_M"),
    "tinyllama-1.1b-chat-v1.0.q4_k_m.gguf": FileName(
        "tinyllama", "1.1B", "chat", "v1.0", encoding="q4_k_m"
    ),
    "gemma-3-270m-it-UD-Q4_K_XL.gguf": FileName("gemma-3", "270M", "it", encoding="UD-Q4_K_XL"),
    "Qwen3-30B-A3B-Q8_0-00001-of-00002.gguf": FileName(
        "Qwen3", "30B-A3B", encoding="Q8_0", shard=(1, 2)
    ),
    "gpt-oss-20b-mxfp4.gguf": FileName("gpt-oss", "20B", encoding="mxfp4"),
    "mmproj-model-f16.gguf": FileName("", encoding="f16", sidecar="mmproj"),
    "Meta-Llama-3-8B-LoRA.gguf": FileName("Meta-Llama-3", "8B", type="LoRA"),
    "L3.3-70B-Euryale-v2.3.i1-IQ3_XXS.gguf": FileName(
        "L3.3", "70B", "Euryale", "v2.3", encoding="IQ3_XXS"
    ),
    "Qwen2.5-VL-7B-Instruct.mmproj-Q8_0.gguf": FileName(
        "Qwen2.5-VL", "7B", "Instruct", encoding="Q8_0", sidecar="mmproj"
    ),
    "yi-34b-200k.Q4_K_M.gguf": FileName("yi", "34B", "200k", encoding="Q4_K_M"),
    "mixtral-8x7b-32k-q2_k.gguf": FileName("mixtral", "8x7B", "32k", encoding="q2_k"),
    "Qwen3-Coder-480B-A35B-Instruct-1M-UD-Q2_K_XL.gguf": FileName(
        "Qwen3-Coder", "480B-A35B", "Instruct-1m", encoding="UD-Q2_K_XL"
    ),
    "Qwen2.5-0.5B-Instruct-Q4_K_M.gguf": FileName("Qwen2.5", "0.5B", "Instruct", encoding="Q4_K_M"),
    "switch-c-1.8T.Q2_K.gguf": FileName("switch-c", "1.8T", encoding="Q2_K"),
    "Qwen_Qwen3-4B-IQ4_NL.gguf": FileName("Qwen_Qwen3", "4B", encoding="IQ4_NL"),
    "7B-chat.gguf": FileName("7B-chat"),
}


@pytest.mark.parametrize("name", CONVENTIONAL)
def test_parses_and_builds_the_examples_of_the_convention(name: str) -> None:
    assert parse_name(name) == CONVENTIONAL[name]
    assert build_name(CONVENTIONAL[name]) == name


@pytest.mark.parametrize("name", WILD)
def test_parses_names_of_published_files(name: str) -> None:
    assert parse_name(name) == WILD[name]


def test_context_length_is_not_a_size_where_the_parameters_are_known() -> None:
    name = "Phi-3-mini-4k-instruct-q4.gguf"
    assert parse_name(name).size_label == "4K"
    parts = parse_name(name, 3_800_000_000)
    assert (parts.size_label, parts.finetune) == ("mini", "4k-instruct")


@given(NAMES, st.sampled_from(["", "-00001-of-00002"]))
def test_a_name_is_conventional_exactly_where_its_regex_matches(stem: str, shard: str) -> None:
    name = f"{stem}{shard}.gguf"
    expected = CONVENTION.fullmatch(name)
    parts = parse_name(name)
    assert parts.conventional == bool(expected)
    if expected:
        texts = {key: text or "" for key, text in expected.groupdict().items() if key != "shard"}
        assert {key: getattr(parts, key) for key in texts} == texts


def test_no_name_takes_exponential_time() -> None:
    assert not parse_name("a" + "- " * 120 + "!.gguf").conventional


@given(st.text(max_size=40))
def test_any_text_has_parts_from_which_a_name_can_be_built(text: str) -> None:
    built = build_name(parse_name(text))
    assert built.endswith(".gguf")
    assert "/" not in built


@given(ORGANIZATIONS, NAMES, PARAMETERS)
def test_model_ids_are_read_as_by_the_official_package(
    organization: str, name: str, parameters: int
) -> None:
    model_id = organization + name
    parts = parse_model_id(model_id, parameters)
    assert (
        parts.name,
        parts.organization,
        parts.basename,
        parts.finetune,
        parts.version,
        parts.size_label,
    ) == Metadata.get_model_id_components(model_id, parameters)
    assert title(model_id) == Metadata.id_to_title(model_id)


@given(st.integers(0, 10**14) | st.integers(0, 13).map(lambda power: 10**power))
def test_size_labels_match_the_official_package(parameters: int) -> None:
    assert size_label(parameters) == utility.size_label(parameters, 0, 0, 0)


@given(st.integers(-(10**10), 10**10), st.integers(-(10**12), 10**12), st.integers(1, 300))
def test_size_labels_of_experts_match_the_official_package(
    shared: int, expert: int, experts: int
) -> None:
    expected = utility.size_label(0, shared, expert, experts)
    assert size_label(0, shared=shared, expert=expert, experts=experts) == expected


@pytest.mark.parametrize(
    "parts",
    [
        FileName("Llama 3", "8B", "Chat Bot", "v1.0", "q4_k_m"),
        FileName("a/b"),
        FileName("Llama", version="v2", type="vocab"),
    ],
)
def test_names_are_built_as_by_the_official_package(parts: FileName) -> None:
    expected = utility.naming_convention(
        None,
        parts.basename,
        parts.finetune or None,
        parts.version or None,
        parts.size_label or None,
        parts.encoding or None,
        parts.type or None,  # type: ignore[arg-type]
    )
    assert build_name(parts) == f"{expected}.gguf"
