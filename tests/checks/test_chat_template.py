"""Chat templates are searched and rendered; every attack ends soon and gives a finding."""

from __future__ import annotations

import importlib.util

import pytest

from ggufkit.checks.chat_template import MAX_TEMPLATES, TEMPLATE, template_faults
from ggufkit.checks.model_view import ModelView
from ggufkit.checks.template_sandbox import MAX_CHARACTERS, answer
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensors
from ggufkit.system import sandbox

SOUND = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"


def rules(text, key=TEMPLATE, **others):
    metadata = Metadata({key: text, **others})
    return [broken.rule for broken in template_faults(ModelView(Model(metadata, Tensors())))]


def rendered(text):
    job = {"template": text, "is_special": False, "bos_token": "<s>", "eos_token": "</s>"}
    return [fault["rule"] for fault in answer(job)]


@pytest.mark.parametrize(
    "text",
    [
        SOUND,
        SOUND + "{% generation %}{{ eos_token }}{% endgeneration %}",
        SOUND + "{% for i in range(9) %}{% if i > 3 %}{% break %}{% endif %}{% endfor %}",
        SOUND + "{{ tools | tojson(indent=2) }}{{ strftime_now('%Y') }}",
        "{% for m in messages %}{{ m.content[0].text }}{% endfor %}",
        SOUND + "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}",
        SOUND + "The words eval( and __class__ are plain text here.",
    ],
)
def test_accepts_what_real_templates_do(text):
    assert rules(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__cla' ~ 'ss__'] }}",
        "{{ messages | attr('_x') }}",
        r"{{ ''['\x5f\x5fclass'] }}",
        "{{ ('_' * 2) }}",
        "{{ cycler.x }}{{ lipsum['y'] }}",
        "{% include 'file' %}",
        "{{ unclosed.popen(",
    ],
)
def test_finds_attempts_to_reach_python(text):
    assert "template-code" in rules(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{{ messages.append(1) }}", "template-unsafe"),
        ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "template-unsafe"),
        ("{{ raise_exception('never') }}", "template-render"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "template-render"),
        ("{{ " + "(" * 50_000, "template-syntax"),
        (SOUND + "{% break %}", "template-syntax"),  # which Python finds, not jinja2
        ("{% for i in range(99999) %}{{ 'x' * 99 }}{% endfor %}", "template-limit"),
    ],
)
def test_reports_an_error_of_rendering(text, rule):
    assert rule in rendered(text)


def test_memory_is_bounded():
    assert rules("{{ 'a'.center(10**10) }}") == ["template-limit"]


def test_templates_beyond_the_limits_are_not_rendered():
    assert rules("x" * (MAX_CHARACTERS + 1)) == ["template-limit"]
    many = {f"{TEMPLATE}.{number}": SOUND for number in range(MAX_TEMPLATES)}
    assert rules(SOUND, **many) == ["template-limit"]


def test_template_with_a_name_gets_tools_and_documents():
    text = "{% for d in documents %}{{ d.text }}{% endfor %}{{ tools[0].function.name }}" + SOUND
    assert rules(text, key=f"{TEMPLATE}.rag") == []
    assert rules(text) == ["template-render"]


def test_stops_a_child_that_does_not_end(monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_WAIT", 2)
    assert rules(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ) == ["template-limit"]


def test_without_jinja2_templates_are_searched_but_not_rendered(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert rules("{{ ''.__class__ }}") == ["template-code", "template-unrendered"]
