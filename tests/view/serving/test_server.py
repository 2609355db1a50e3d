"""The server shows models to its own page only, changes nothing, and survives any request."""

from __future__ import annotations

import json
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.inspection.summary import summarize
from ggufkit.view.picture import TilePlace, tile
from ggufkit.view.serving import routes
from ggufkit.view.serving import server as server_module
from ggufkit.view.serving.guard import HEADERS, new_token
from ggufkit.view.serving.routes import GETS, MAX_BODY, MAX_OTHERS, MAX_SLOW, PAGE, POSTS, TILES
from ggufkit.view.serving.server import PortError, bound, guarded, is_open_to_others

DIGITS = b'{"context": %s}' % (b"9" * 5000)  # Python refuses such numbers with ValueError
MAX_PAGE = 300_000  # bytes of all files of the page


@pytest.fixture(scope="module")
def server(run_server, smollm2_page):
    with run_server(smollm2_page) as running:
        yield running


# Who may ask.


@pytest.mark.parametrize("path", ["/", "/api/overview", "/wrong/", "/wrong/api/overview", "//", ""])
def test_nothing_is_shown_without_the_token(server, path):
    answer = server.ask(path or "/", raw=True)
    assert answer.status == 403
    assert b"token" in answer.body


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil", ""]
)
def test_another_host_is_refused(server, host):
    answer = server.ask("api/models", headers={"Host": host})
    assert answer.status in {400, 421}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_names_of_this_machine_are_allowed(server, host):
    headers = {"Host": f"{host}:{server.address.port}"}
    assert server.ask("api/models", headers=headers).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_page_is_refused(server, headers):
    assert server.ask("api/models", headers=headers).status == 403
    assert server.ask("", headers=headers).status == 403


def test_the_page_itself_is_allowed(server):
    headers = {
        "Origin": f"http://127.0.0.1:{server.address.port}",
        "Sec-Fetch-Site": "same-origin",
    }
    assert server.ask("api/models", headers=headers).status == 200


def test_tokens_are_long_and_differ():
    assert len({new_token() for _ in range(100)}) == 100
    assert min(len(new_token()) for _ in range(100)) >= 32


def test_no_answer_allows_other_pages(server):
    for path in ("", "api/models", "nowhere", "../../etc/passwd"):
        answer = server.ask(path)
        assert "access-control-allow-origin" not in answer.headers
        assert all(answer.headers[name.lower()] == value for name, value in HEADERS.items())


def test_the_policy_allows_no_inline_code():
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "http" not in policy


# What is served.


@pytest.mark.parametrize(
    "path",
    [
        "../guard.py",
        "..%2fguard.py",
        "%2e%2e/guard.py",
        "....//guard.py",
        "views/../../guard.py",
        "/etc/passwd",
        "%00",
        "views/",
        "page/index.html",
        "..\\guard.py",
        "api/../../guard.py",
    ],
)
def test_no_path_leads_out_of_the_page(server, path):
    answer = server.ask(path)
    assert answer.status == 404
    assert b"Guard" not in answer.body


def test_the_page_is_small_and_needs_no_other_server():
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_PAGE
    for path in files:
        text = path.read_text("utf-8").replace("http://www.w3.org/", "")
        assert "http://" not in text, path
        assert "https://" not in text, path
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write"):
            assert word not in text, (path, word)


def test_every_file_of_the_page_is_served(server):
    for path in PAGE.rglob("*"):
        if path.is_file():
            answer = server.ask(path.relative_to(PAGE).as_posix())
            assert (answer.status, answer.body) == (200, path.read_bytes())
    assert server.ask("").body == (PAGE / "index.html").read_bytes()


def test_the_address_without_its_last_slash_leads_to_the_page(server):
    answer = server.ask(f"/{server.address.token}", raw=True)
    assert (answer.status, answer.headers["location"]) == (307, f"/{server.address.token}/")


def test_figures_are_those_of_the_library(server, smollm2_page):
    summary = server.ask("api/overview?model=0").json["summary"]
    facts = summarize(smollm2_page.model)
    assert (summary["parameters"], summary["recipe"]) == (facts.parameters, facts.recipe)


def test_a_tile_is_served_as_numbers(server, smollm2_page):
    answer = server.ask("api/tile?tensor=3&level=1&row=0&column=0")
    rows, columns = map(int, answer.headers["x-shape"].split(","))
    values = np.frombuffer(answer.body, "<f4", offset=8 * (rows + columns)).reshape(rows, columns)
    places = np.frombuffer(answer.body, "<f8", rows + columns).astype(int)
    tensor = smollm2_page.tensor(3)
    assert np.array_equal(values, tensor.numpy()[np.ix_(places[:rows], places[rows:])])
    assert np.array_equal(values, tile(tensor, TilePlace(1, 0, 0)).values)


# Wrong requests.


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECTION"])
def test_the_server_only_shows(server, method):
    assert server.ask("api/models", method=method).status in {400, 405}


@pytest.mark.parametrize("name", [*GETS, *TILES])
@pytest.mark.parametrize(
    "query",
    ["model=9", "model=-1", "model=x", "model=1e9", "start=-5", "tensor=999999", "key=99999"],
)
def test_wrong_parameters_get_an_answer_in_words(server, name, query):
    answer = server.ask(f"api/{name}?other=0&{query}")
    assert answer.status in {200, 422}
    if answer.status == 422:
        assert answer.json["error"]


@pytest.mark.parametrize("name", POSTS)
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"5", b"{", b"\xff", b"[" * 100_000, b'{"text": 5, "messages": 7}', DIGITS],
)
def test_wrong_bodies_get_an_answer_in_words(server, name, body):
    headers = {"Content-Type": "application/json"}
    answer = server.ask(f"api/{name}", method="POST", headers=headers, body=body)
    assert answer.status in {200, 422}


def test_a_body_that_is_not_json_is_refused(server):
    headers = {"Content-Type": "text/plain"}  # what a form of another page could send
    assert server.ask("api/split", method="POST", headers=headers, body=b"{}").status == 415


def test_a_body_that_is_too_long_is_refused(server):
    headers = {"Content-Type": "application/json"}
    body = b'"' + b"a" * MAX_BODY + b'"'
    assert server.ask("api/split", method="POST", headers=headers, body=body).status == 413


@given(st.binary(max_size=200))
def test_random_bytes_do_not_stop_the_server(server, data):
    with socket.create_connection(("127.0.0.1", server.address.port)) as connection:
        connection.sendall(data + b"\r\n\r\n")
    assert server.ask("api/models").status == 200


@given(
    st.sampled_from([*GETS, *TILES]),
    st.dictionaries(
        st.sampled_from(
            ["model", "other", "tensor", "level", "row", "column", "key", "start", "id"]
        ),
        st.one_of(st.integers(-3, 10**16), st.integers(0, 40), st.text(max_size=5)).map(str),
        max_size=4,
    ),
)
def test_random_parameters_never_fail_inside(server, name, values):
    if name in {"statistics", "error", "faults", "error-tile"} and "model" not in values:
        return  # they read whole tensors
    query = "&".join(
        f"{key}={value.encode().hex()}" if not value.lstrip("-").isdigit() else f"{key}={value}"
        for key, value in values.items()
    )
    assert server.ask(f"api/{name}?{query}").status in {200, 422}


def test_a_hundred_clients_are_served_at_the_same_time(server):
    paths = ["api/overview", "api/tensors?count=50", "api/tile?tensor=0&level=3", "api/layers", ""]
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda n: server.ask(paths[n % len(paths)]), range(300)))
    assert {answer.status for answer in answers} == {200}
    for number, path in enumerate(paths):
        assert len({answers[n].body for n in range(number, 300, len(paths))}) == 1, path


def test_slow_answers_leave_the_page_to_others(run_server, model_page, monkeypatch):
    begun, go_on = threading.Semaphore(0), threading.Event()

    def wait(_):
        begun.release()
        go_on.wait(60)

    for name in ("statistics", "treemap"):
        monkeypatch.setitem(GETS, name, wait)
    with run_server(model_page({})) as running, ThreadPoolExecutor(100) as pool:
        paths = ["api/statistics", "api/treemap"] * 30
        waiting = [pool.submit(running.ask, path) for path in paths]
        for _ in range(MAX_SLOW + MAX_OTHERS):
            assert begun.acquire(timeout=60)
        statuses = [running.ask(path).status for path in ("", "app.js", "api/models")]
        go_on.set()
        assert statuses == [200, 200, 200]
        assert {answer.result().status for answer in waiting} == {200}


def test_an_answer_that_is_too_long_is_refused(run_server, model_page, monkeypatch):
    monkeypatch.setattr(routes, "MAX_ANSWER", 1000)
    with run_server(model_page({}, {"x": "a" * 2000})) as running:
        answer = running.ask("api/value?key=0")
    assert (answer.status, "too long" in answer.json["error"]) == (422, True)


# Where it listens.


def test_a_port_that_is_taken_is_said(server):
    with pytest.raises(PortError, match="cannot listen") as raised:
        bound(port=server.address.port)
    assert "another port" in raised.value.remedy


ANY = "0.0.0.0"  # noqa: S104 (closed again at once)


def test_only_loopback_is_closed_to_others():
    for host, is_open in (("127.0.0.1", False), ("localhost", False), (ANY, True)):
        address = bound(host)
        assert is_open_to_others(host) == is_open
        assert address.url.startswith(
            "http://127.0.0.1:" if host != "localhost" else "http://localhost:"
        )
        address.socket.close()


def test_a_server_for_others_takes_any_name_but_needs_the_token(model_page):
    address = bound(ANY)
    assert guarded([model_page({})], address).hosts == frozenset()
    address.socket.close()


def test_hostile_texts_stay_json(run_server, model_page):
    hostile = '</script><img src=x onerror=alert(1)>\u202e\u0000"'
    model = model_page(
        {hostile[:-2]: np.zeros(32, np.float32)}, {"general.name": hostile, hostile[:-2]: 1}
    )
    with run_server(model) as running:
        for name in ("overview", "metadata", "tensors", "treemap", "layers"):
            answer = running.ask(f"api/{name}")
            assert answer.headers["content-type"] == "application/json"
            assert b"\xe2\x80\xae" not in answer.body
        assert running.ask("api/overview").json["summary"]["name"] == hostile
        assert json.loads(running.ask("api/metadata").body)["total"] == 2


def test_work_on_a_model_keeps_other_requests_waiting_for_short_times_only(monkeypatch):
    intervals = []

    class Stopped:
        is_working = False

        def run(self, **_):
            intervals.append(sys.getswitchinterval())

    before = sys.getswitchinterval()
    monkeypatch.setattr(server_module, "server_of", lambda *_: Stopped())
    address = bound()
    try:
        server_module.serve([], address, opens_browser=False)
    finally:
        sys.setswitchinterval(before)
        address.socket.close()
    assert intervals == [pytest.approx(0.0005)]
