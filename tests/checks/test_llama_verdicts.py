"""check and llama.cpp agree on models that each have one error."""

from __future__ import annotations

import re

import pytest

import ggufkit
import llama_loads
import shapes
import spoiled
from known_tensors import TABLE, written

# What check cannot foretell, and why.
UNFORESEEN = {
    # The size depends on the first block's window, about which only llama.cpp's code knows.
    "gemma3": r"gemma3\.attention\.(key|value)_length_swa added",
    # llama.cpp aborts where it looks for a line feed among tokens of another kind.
    "gemma3 ": r"tokenizer\.ggml\.model = string 'bert'",
}
OF_HOLES = "unfinished"  # what check says of files without data, rightly
STEPS = {"small": 4, "experts": 4, "smollm2": 16, "gemma3": 16, "minilm": 16}


def disagreements(base, cases, folder):
    """Return the answers of check and llama.cpp for the cases on which they disagree."""
    verdicts, rules_by_path = {}, {}
    for index, case in enumerate(cases):
        path = shapes.write_sparse(case.model, folder / f"{index}.gguf")
        verdicts[path] = [
            finding.rule
            for finding in ggufkit.check(path)
            if finding.rule != OF_HOLES
            and (finding.breaks == "llama.cpp" or finding.severity == "error")
        ]
        rules_by_path[path] = case.what
    refused = llama_loads.refusals(verdicts)
    forms = [form for name, form in UNFORESEEN.items() if name.strip() == base]
    return [
        (rules_by_path[path], refused.get(path, "loaded"), rules)
        for path, rules in verdicts.items()
        if (path in refused) != bool(rules)
        and not any(re.match(form, rules_by_path[path]) for form in forms)
    ]


@pytest.mark.parametrize("base", spoiled.BASES)
def test_llama_cpp_agrees_with_check_on_a_sample_of_wrong_models(llama_cpp, base, tmp_path):
    cases = list(spoiled.cases(base))
    assert disagreements(base, cases[:: STEPS[base]], tmp_path) == []


# Real vocabularies take minutes each, and the small models break the same rules.
REAL = ("smollm2", "gemma3")
MORE = [
    *(pytest.param(b, 1, 2, marks=pytest.mark.matrix) for b in spoiled.BASES if b not in REAL),
    *(pytest.param(b, 0, 1, marks=pytest.mark.exhaustive) for b in spoiled.BASES),
]


@pytest.mark.parametrize(("base", "start", "step"), MORE)
def test_llama_cpp_agrees_with_check_on_more_wrong_models(llama_cpp, base, start, step, tmp_path):
    assert disagreements(base, list(spoiled.cases(base))[start::step], tmp_path) == []


def test_known_tensors_match_the_source_of_llama_cpp(llama_cpp_loader):
    assert TABLE.read_text("utf-8") == written(llama_cpp_loader)
