"""Render conversations with chat templates: the process that `chat_template` starts.

It imports only the standard library and jinja2.
"""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any, Final

from ggufkit.checks.template_sandbox import environment

FAILS: Final = "fails on this conversation"


def answer(job: dict[str, Any]) -> dict[str, str]:
    """Return the text of a conversation, or what the template does instead and why."""
    from jinja2 import TemplateError, TemplateSyntaxError  # noqa: PLC0415 (an extra)

    try:
        return {"text": _compiled(job["template"]).render(job["variables"])}
    except TemplateSyntaxError as error:
        return {"what": "has an error", "reason": str(error)}
    except TemplateError as error:
        return {"what": "refuses", "reason": str(error)}
    except MemoryError:
        return {"what": FAILS, "reason": "it needs too much memory"}
    except Exception as error:  # noqa: BLE001 (a template can raise whatever Python can)
        return {"what": FAILS, "reason": str(error) or type(error).__name__}


@functools.lru_cache(maxsize=32)
def _compiled(text: str) -> Any:  # noqa: ANN401 (a template of jinja2)
    made = environment()
    made.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return made.from_string(text)


def _refuse(message: object) -> None:
    from jinja2 import TemplateError  # noqa: PLC0415 (an extra)

    raise TemplateError(str(message))


def _now(form: str) -> str:
    return dt.datetime.now().strftime(form)  # noqa: DTZ005 (the user's own time)
