"""lm-evaluation-harness gives a GGUF file the scores that transformers gives its checkpoint."""

from __future__ import annotations

import importlib
import importlib.util
import json
import runpy
import sys
from pathlib import Path

import pytest

import ggufkit
from ggufkit.errors import ValueTypeError

ORACLE = Path(__file__).parents[1] / "oracle"
sys.path.insert(0, str(ORACLE))
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # of the harness and its libraries
    pytest.mark.skipif(
        importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed"
    ),
]
TEXT = "the quick brown fox jumps over a lazy dog and isn't tired of 日本語 words"
WORDS = TEXT.split()
ROWS = 12  # of the data of each task
TOLERANCE = 2e-3  # of a log probability: the cache has 16 bits
HEAD = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
"""
TASKS = {
    "local_choices": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "local_rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}]
""",
    "local_answers": """
output_type: generate_until
doc_to_text: "The {{question}}"
doc_to_target: "{{text}}"
generation_kwargs: {until: ["e"], do_sample: false, max_gen_toks: 12}
metric_list: [{metric: exact_match}]
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a checkpoint, its GGUF file, and tasks with their data."""
    import tiny

    folder = tmp_path_factory.mktemp("lm_eval")
    tiny.model_of("llama-f32").save_pretrained(folder / "tiny")
    tiny.save_bytes(folder / "tiny")
    with ggufkit.convert(folder / "tiny", outtype="f32", pre="gpt-2") as source:
        source.write(folder / "tiny.gguf")
    rows = [
        {
            "question": " ".join(WORDS[: number % 9 + 1]) if number else "",
            "choices": [f" {word}" * (number % 3 + 1) for word in WORDS[number % 7 :: 4]],
            "answer": number % 3,
            "text": " ".join(WORDS[number % 5 :] * (number % 4 * 15 + 1)),
        }
        for number in range(ROWS)
    ]
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tasks").mkdir()
    for name, text in TASKS.items():
        task = HEAD.format(name=name, data=data) + text
        (folder / "tasks" / f"{name}.yaml").write_text(task)
    return folder


@pytest.fixture
def evaluate(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import lm_eval
    import lm_eval.tasks

    tasks = lm_eval.tasks.TaskManager(include_path=str(folder / "tasks"), include_defaults=False)

    def run(model, **options):
        answer = lm_eval.simple_evaluate(
            model, tasks=[*TASKS], task_manager=tasks, bootstrap_iters=0, log_samples=True,
            **options,
        )  # fmt: skip
        samples = {
            name: sorted(answer["samples"][name], key=lambda sample: sample["doc_id"])
            for name in TASKS
        }
        return answer["results"], samples

    return run


def test_results_are_those_of_transformers(folder, evaluate):
    importlib.import_module("ggufkit.lm_eval")  # registers the model
    expected, known = evaluate(
        "hf", model_args=f"pretrained={folder / 'tiny'},max_length=128", device="cpu"
    )
    options = {"model_args": f"path={folder / 'tiny.gguf'},max_length=128"}
    for batch_size in (1, 3, "auto"):
        results, samples = evaluate("ggufkit", batch_size=batch_size, **options)
        for name in TASKS:
            assert len(samples[name]) == len(known[name]) == ROWS
            for sample, other in zip(samples[name], known[name], strict=True):
                compare(name, sample["resps"], other["resps"])
            numbers = {k: v for k, v in expected[name].items() if "stderr" not in k}
            numbers = {k: v for k, v in numbers.items() if isinstance(v, float)}
            assert numbers
            for metric, number in numbers.items():
                assert results[name][metric] == pytest.approx(number, rel=1e-3), metric


def compare(name, responses, others):
    assert len(responses) == len(others)
    for (response,), (other,) in zip(responses, others, strict=True):
        if name == "local_answers":
            assert response == other
        elif name == "local_choices":
            assert response[0] == pytest.approx(other[0], abs=TOLERANCE * 8, rel=TOLERANCE)
            assert response[1] == other[1]
        else:
            assert response == pytest.approx(other, rel=TOLERANCE)


def test_a_shared_context_is_computed_once_and_logits_only_where_needed(folder, monkeypatch):
    from ggufkit.frameworks.lm_eval import GGUFModel
    from ggufkit.llama_cpp.session import Session

    computed, decode = [], Session.decode_batch

    def counted(self, tokens):
        computed.extend(tokens)
        decode(self, tokens)

    monkeypatch.setattr(Session, "decode_batch", counted)
    model = GGUFModel(str(folder / "tiny.gguf"))
    context, choices = [5, 6, 7, 8], [[1], [2], [3, 4]]
    texts = [(("", ""), context, choice) for choice in choices]
    together = model._loglikelihood_tokens(texts)
    assert len(computed) == len(context) + 1
    assert sum(token.is_output for token in computed) == 2
    alone = [model._loglikelihood_tokens([text])[0] for text in texts]
    assert [score for score, _ in together] == pytest.approx([s for s, _ in alone], abs=1e-3)


def test_what_the_model_cannot_do_is_refused(folder):
    from types import SimpleNamespace

    from ggufkit.frameworks.lm_eval import GGUFModel

    model = GGUFModel(str(folder / "tiny.gguf"), max_length=16)
    for options in ({"do_sample": True, "temperature": 1.0}, {"max_gen_toks": 16}):
        with pytest.raises(ValueTypeError):
            model.generate_until([SimpleNamespace(args=("the", options))])
    with pytest.raises(ValueTypeError, match="max_length"):
        model._loglikelihood_tokens([(("", ""), [1], [2] * 17)])


def test_the_command_of_the_harness_knows_the_model(folder, tmp_path, monkeypatch):
    command = [
        "lm_eval", "--model", "ggufkit", "--model_args", f"path={folder / 'tiny.gguf'}",
        "--tasks", "local_choices", "--include_path", str(folder / "tasks"), "--limit", "3",
        "--output_path", str(tmp_path / "out"),
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    runpy.run_module("ggufkit.lm_eval", run_name="__main__")
    assert list((tmp_path / "out").rglob("results*.json"))
