"""What the page may ask: one route for each function of the views.

All are read-only but those of `edit_page`, which only a server that was started to edit has.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ggufkit._version import __version__
from ggufkit.errors import GGUFError
from ggufkit.frameworks.extras import library
from ggufkit.remote.url import scheme_of
from ggufkit.view import picture
from ggufkit.view.page_model import PageModel

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from ggufkit.view.edit_page import Editor

PAGE: Final = Path(__file__).parents[1] / "page"
MAX_BODY: Final = 4 << 20  # bytes of a conversation or a text
BODY_SECONDS: Final = 30  # for a body to arrive
MAX_ANSWER: Final = 64 << 20  # bytes
MAX_SLOW: Final = 4  # requests that read tensors or ask another process, at the same time
MAX_OTHERS: Final = 4  # requests that read headers, which may have a million keys and tensors
MAX_COUNT: Final = 1000  # rows in one answer
MAX_TEXT: Final = 100_000  # characters or items, if the request does not say
_MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class RequestError(GGUFError):
    """A request that the page itself does not make."""


@dataclass(frozen=True)
class Query:
    """The parameters of a request, checked, and the models that they may choose from."""

    values: dict[str, str]
    models: Sequence[PageModel]

    def number(self, name: str, default: int = 0) -> int:
        """Return a whole number from 0 on; RequestError for anything else."""
        text = self.values.get(name, str(default))
        if not (text.isascii() and text.isdecimal()) or len(text) > 15:  # noqa: PLR2004 (beyond any file)
            raise RequestError(f"`{name}` is not a number of this model")
        return int(text)

    def model(self, name: str = "model") -> PageModel:
        """Return the model of a number; RequestError if there are not so many."""
        number = self.number(name)
        if number >= len(self.models):
            raise RequestError(
                f"there is no model {number} on this page", remedy="Open the page again"
            )
        return self.models[number]


def _page(name: str) -> Any:  # noqa: ANN401 (a module)
    """Return the module of a view, imported when first asked for: the first view is not theirs."""
    return importlib.import_module(f"ggufkit.view.{name}")


def _view(module: str, function: str, *arguments: str) -> RouteAnswer:
    """Return what calls a function of a view with the model and other arguments.

    `arguments` are keys of _ARGUMENTS, or names of whole numbers.
    """

    def answer(query: Query) -> Any:  # noqa: ANN401 (any document)
        values = [
            _ARGUMENTS[name](query) if name in _ARGUMENTS else query.number(name)
            for name in arguments
        ]
        return getattr(_page(module), function)(query.model(), *values)

    return answer


RouteAnswer = Callable[[Query], Any]
PostAnswer = Callable[[Query, dict[str, Any]], Any]
Endpoint = Callable[["Request"], Coroutine[Any, Any, "Response"]]


def _index(query: Query, *, edits: bool = False) -> dict[str, Any]:
    names = [
        {
            "name": page.name,
            "nbytes": page.nbytes_on_disk,
            "local": not scheme_of(page.name),
            "quality": page.quality,
            **({"editable": True} if edits and not scheme_of(page.name) else {}),
        }
        for page in query.models
    ]
    return {"version": __version__, "models": names}


_ARGUMENTS: Final[dict[str, RouteAnswer]] = {
    "other": lambda query: query.model("other"),
    "models": lambda query: query.models,
    "parameters": lambda query: query.values,
    "group": lambda query: query.values.get("group", ""),
    "search": lambda query: query.values.get("search", ""),
    "row count": lambda query: min(query.number("count", 100), MAX_COUNT),
    "length": lambda query: query.number("count", MAX_TEXT),
    "tile": lambda query: picture.TilePlace(*map(query.number, ("level", "row", "column"))),
}
GETS: Final[dict[str, RouteAnswer]] = {
    "models": _index,
    "overview": _view("overview", "overview"),
    "treemap": _view("overview", "treemap", "group"),
    "layers": _view("overview", "layer_grid"),
    "faults": _view("faults_page", "faults"),
    "metadata": _view("metadata_page", "metadata_rows", "search", "start", "row count"),
    "value": _view("metadata_page", "metadata_value", "key", "start", "length"),
    "document": _view("metadata_page", "metadata_document", "key"),
    "tensors": _view("tensor_page", "tensor_rows", "parameters", "start", "row count"),
    "tensor-parts": _view("tensor_page", "tensor_parts", "parameters", "start", "row count"),
    "tensor": _view("tensor_page", "tensor_details", "tensor"),
    "statistics": _view("tensor_page", "statistics", "tensor"),
    "sample": lambda query: picture.sample_statistics(query.model().tensor(query.number("tensor"))),
    "block": _view("tensor_page", "block", "tensor", "row", "column"),
    "tokenizer": _view("tokens_page", "tokens_facts"),
    "tokens": _view("tokens_page", "token_rows", "search", "start", "row count"),
    "token": _view("tokens_page", "token_merges", "id"),
    "templates": _view("prompt_page", "templates"),
    "memory": _view("memory_page", "memory_facts"),
    "comparison": _view("compare_page", "comparison", "other"),
    "family": _view("compare_page", "family", "models"),
    "same-tensors": _view("compare_page", "same_tensors", "models", "tensor"),
    "values-of-both": _view("compare_page", "values_of_both", "other", "tensor", "row", "column"),
    "error": _view("compare_page", "tensor_error", "other", "tensor"),
}
SLOW: Final = ("error", "faults", "sample", "statistics")
# Pictures, little endian: the rows and the columns of the values as float64 (which JavaScript
# counts in), and the values as float32, row by row.
TILES: Final[dict[str, RouteAnswer]] = {
    "tile": lambda query: picture.tile(
        query.model().tensor(query.number("tensor")), _ARGUMENTS["tile"](query)
    ),
    "error-tile": _view("compare_page", "error_tile", "other", "tensor", "tile"),
}
# Long texts come in the body of a request; they change nothing either.
POSTS: Final[dict[str, PostAnswer]] = {
    "split": lambda query, body: _page("tokens_page").split_text(
        query.model(), str(body.get("text", "")), special=body.get("special") is not False
    ),
    "prompt": lambda query, body: _page("prompt_page").prompt(query.model(), body),
    "memory": lambda query, body: _page("memory_page").memory(query.model(), body),
    "memory-curves": lambda query, body: _page("memory_page").memory_curves(query.model(), body),
    "template-lines": lambda _, body: _page("prompt_page").compare_templates(
        str(body.get("before", "")), str(body.get("after", ""))
    ),
}


def application(models: Sequence[PageModel], editor: Editor | None = None) -> Starlette:
    """Return the server's application for open models; `PageGuard` keeps others out.

    Without an `editor` no route changes anything.
    """
    routing = library("starlette.routing", "view")
    index, slow, usual = map(asyncio.Semaphore, (MAX_OTHERS, MAX_SLOW, MAX_OTHERS))
    slots = dict.fromkeys(SLOW, slow) | {"models": index}
    gets = {name: _get(models, GETS[name], _json, slots.get(name, usual)) for name in GETS}
    gets |= {name: _get(models, TILES[name], _picture, slow) for name in TILES}
    posts = {name: _post(models, POSTS[name], slow) for name in POSTS}
    if editor:
        for name, show in _editing(editor).items():
            gets[name] = _get(models, show, _json, slots.get(name, slow))
        for name, answer in (("edit-preview", editor.preview), ("edit-apply", editor.apply)):
            posts[name] = _post(models, _of_model(answer), slow)
    app: Starlette = library("starlette.applications", "view").Starlette(
        routes=[
            *(routing.Route(f"/{name}", _file(name)) for name in _page_files()),
            routing.Route("/", _file("index.html")),
            *(routing.Route(f"/api/{name}", serve) for name, serve in gets.items()),
            *(
                routing.Route(f"/api/{name}", serve, methods=["POST"])
                for name, serve in posts.items()
            ),
        ]
    )
    return app


def _editing(editor: Editor) -> dict[str, RouteAnswer]:
    """Return the read-only routes of a server that edits; the index says which models are local."""
    return {
        "models": lambda query: _index(query, edits=True),
        "edit": lambda query: editor.facts(query.model()),
        "edit-text": lambda query: editor.text(query.model(), query.number("key")),
    }


def _of_model(answer: Callable[[PageModel, dict[str, Any]], Any]) -> PostAnswer:
    return lambda query, body: answer(query.model(), body)


def _page_files() -> list[str]:
    """Return the names of the page's files: nothing else is served, so no path leads outside."""
    paths = (path for path in PAGE.rglob("*") if path.suffix in _MEDIA)
    return sorted(path.relative_to(PAGE).as_posix() for path in paths)


def _file(name: str) -> Callable[[Request], Response]:
    responses = library("starlette.responses", "view")

    def serve(_: Request) -> Response:
        data = resources.files("ggufkit.view").joinpath(PAGE.name, *name.split("/")).read_bytes()
        response: Response = responses.Response(data, media_type=_MEDIA[Path(name).suffix])
        return response

    return serve


def _get(
    models: Sequence[PageModel],
    answer: Callable[[Query], Any],
    respond: Callable[[Any], Response],
    slots: asyncio.Semaphore,
) -> Endpoint:
    async def serve(request: Request) -> Response:
        query = Query(dict(request.query_params), models)
        return await _in_turn(slots, lambda: respond(answer(query)))

    return serve


def _picture(tile: picture.Tile) -> Response:
    places = tile.rows.astype("<f8").tobytes() + tile.columns.astype("<f8").tobytes()
    response: Response = library("starlette.responses", "view").Response(
        places + tile.values.astype("<f4").tobytes(),
        media_type="application/octet-stream",
        headers={"X-Shape": ",".join(map(str, tile.values.shape))},
    )
    return response


def _post(models: Sequence[PageModel], answer: PostAnswer, slots: asyncio.Semaphore) -> Endpoint:
    async def serve(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _error("the request is not JSON", status=415)
        try:
            data = await asyncio.wait_for(_body(request), BODY_SECONDS)
        except asyncio.TimeoutError:
            return _error("the request takes too long", status=408)
        if len(data) > MAX_BODY:
            return _error(f"the request has more than {MAX_BODY:,} bytes", status=413)
        query = Query(dict(request.query_params), models)
        return await _in_turn(slots, lambda: _json(answer(query, _document(data))))

    return serve


async def _body(request: Request) -> bytes:
    """Return the body of a request, at most little more than MAX_BODY bytes of it."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY:
            break
    return bytes(data)


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (RecursionError, ValueError) as error:  # of numbers with thousands of digits too
        raise RequestError(f"the request is not valid: {type(error).__name__}") from error
    if not isinstance(document, dict):
        raise RequestError("the request is not an object of JSON")
    return document


async def _in_turn(slots: asyncio.Semaphore, answer: Callable[[], Response]) -> Response:
    """Return an answer from a thread, after those before it: slow ones leave threads for others."""
    async with slots:
        response: Response = await library("starlette.concurrency", "view").run_in_threadpool(
            _answered, answer
        )
    return response


def _answered(respond: Callable[[], Response]) -> Response:
    """Return an answer; errors become JSON with the message and the remedy."""
    try:
        return respond()
    except RequestError as error:
        return _error(error.message, error.remedy)
    except GGUFError as error:  # about the model: an answer too, which browsers do not log
        return _error(error.message, error.remedy, status=200)
    except OSError as error:
        return _error(str(error), "Is the file still there?", status=200)
    except (RecursionError, UnicodeError) as error:
        return _error(f"the request is not valid: {type(error).__name__}")


def _error(message: str, remedy: str = "", *, status: int = 422) -> Response:
    return _json({"error": message, "remedy": remedy}, status)


def _json(document: object, status: int = 200) -> Response:
    # ASCII, because texts of a file may hold bytes that are not UTF-8.
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    if len(text) > MAX_ANSWER:
        return _error("what the file has here is too long for the page")
    response: Response = library("starlette.responses", "view").Response(
        text, status, media_type="application/json"
    )
    return response
