"""Render conversations with chat templates: the process that `chat_template` starts.

It imports only the standard library and jinja2.
"""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any, Final

from ggufkit.checks.template_sandbox import (
    OutputLimitError,
    RefusedError,
    environment,
    joined_within,
)

FAILS: Final = "fails on this conversation"
MAX_TEXT: Final = 16 << 20  # characters of a rendered conversation
MAX_REASON: Final = 1000  # characters


def answer(job: dict[str, Any]) -> dict[str, str]:
    """Return the text of a conversation, or what the template does instead and why."""
    from jinja2 import TemplateError, TemplateSyntaxError  # noqa: PLC0415 (an extra)

    try:
        pieces = _compiled(job["template"]).generate(job["variables"])
        return {"text": joined_within(MAX_TEXT, pieces)}
    except TemplateSyntaxError as error:
        return {"what": "has an error", "reason": str(error)[:MAX_REASON]}
    except (TemplateError, RefusedError) as error:
        return {"what": "refuses", "reason": str(error)[:MAX_REASON]}
    except OutputLimitError:
        return {"what": FAILS, "reason": f"its output has more than {MAX_TEXT:,} characters"}
    except MemoryError:
        return {"what": FAILS, "reason": "it needs too much memory"}
    except Exception as error:  # noqa: BLE001 (a template can raise whatever Python can)
        return {"what": FAILS, "reason": str(error)[:MAX_REASON] or type(error).__name__}


@functools.lru_cache(maxsize=32)
def _compiled(text: str) -> Any:  # noqa: ANN401 (a template of jinja2)
    jinja = environment()
    now = dt.datetime.now  # the user's own time
    jinja.globals["strftime_now"] = lambda form: now().strftime(str(form))
    return jinja.from_string(text)
