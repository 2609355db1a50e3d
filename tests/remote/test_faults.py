"""Servers that answer wrongly, slowly, or not at all."""

from __future__ import annotations

import email.utils
import time

import numpy as np
import pytest

from ggufkit.errors import (
    FormatError,
    NoRangesError,
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
    WaitingWarning,
)
from ggufkit.output.download import download
from ggufkit.remote import limits
from ggufkit.remote.remote_file import RemoteFile
from ranged_server import Served

DATA = np.random.default_rng(7).integers(0, 256, 3 << 20, np.uint8).tobytes()
SIZE = len(DATA)
FAR = (2 << 20) + 5  # beyond the first request


def later(fault):
    """Return a fault for all requests but the first."""
    return lambda handler, number: number > 1 and fault(handler, number)


def read_far(fault, *, nbytes=1000, files=None):
    """Return what a read beyond the beginning gives, and the server."""
    with Served(files or {"/f": DATA}, fault=later(fault)) as server:
        file = RemoteFile(server.url("/f"))
        assert file.nbytes == len(DATA)
        return bytes(file.read(FAR, nbytes)), server


def once(fault):
    """Return a fault that happens in the second request only."""
    return lambda handler, number: number == 2 and fault(handler, number)


def ranged(start, stop, total=SIZE, **headers):
    answer_headers = {"Content-Range": f"bytes {start}-{stop - 1}/{total}", **headers}
    return lambda handler, _: handler.send(206, DATA[start:stop], answer_headers) or True


@pytest.mark.parametrize("start", [0, FAR - 1, FAR + 1])
def test_a_wrong_range_is_refused(start):
    with pytest.raises(RemoteError, match="other bytes than requested"):
        read_far(ranged(start, start + 1000))


@pytest.mark.parametrize("text", ["", "bytes */*", "bytes 5-3/9", "items 0-1/2", "bytes 0-9/5"])
def test_a_range_without_sense_is_refused(text):
    with pytest.raises(RemoteError, match="other bytes than requested"):
        read_far(lambda handler, _: handler.send(206, b"x", {"Content-Range": text}) or True)


def test_a_server_may_send_less_than_was_asked_for():
    def less(handler, _):
        start = int(handler.headers["Range"].removeprefix("bytes=").partition("-")[0])
        return ranged(start, start + 300)(handler, _)

    data, server = read_far(less)
    assert data == DATA[FAR : FAR + 1000]
    assert len(server.requests) == 5


def test_a_size_that_the_server_does_not_tell_is_an_error():
    with pytest.raises(RemoteError, match="does not state the size"):
        read_far(ranged(FAR, FAR + 1000, "*"))


def test_a_broken_body_goes_on_where_it_stopped():
    def broken(handler, _):
        body = DATA[FAR : FAR + 1000]
        headers = {"Content-Range": f"bytes {FAR}-{FAR + 999}/{len(DATA)}"}
        handler.send(206, body, headers, upto=600)
        return True

    data, server = read_far(once(broken))
    assert data == DATA[FAR : FAR + 1000]
    assert server.requests[-1].headers["range"] == f"bytes={FAR + 600}-{FAR + 999}"


def test_a_connection_that_always_breaks_ends_in_an_error():
    def broken(handler, _):
        handler.close_connection = True
        return True

    with pytest.raises(RemoteError, match="cannot be read"):
        read_far(broken)


def test_a_whole_file_in_the_place_of_a_range_is_not_read():
    with pytest.raises(NoRangesError):
        read_far(lambda handler, _: handler.send(200, DATA) or True)


@pytest.mark.parametrize("changed", ["etag", "size", "shorter"])
def test_a_file_that_changes_is_noticed(changed):
    faults = {
        "etag": lambda handler, _: handler.answer(etag='"other"') or True,
        "size": ranged(FAR, FAR + 1000, len(DATA) + 1),
        "shorter": lambda handler, _: handler.answer(data=DATA[:FAR]) or True,
    }
    with pytest.raises(FormatError, match="changed while it was in use"):
        read_far(faults[changed])


def test_without_an_etag_the_time_of_the_last_change_decides():
    def dated(handler, number):
        start, stop = (0, 2 << 20) if number == 1 else (FAR, FAR + 1000)
        when = email.utils.formatdate(1e9 + number, usegmt=True)
        return ranged(start, stop, **{"Last-Modified": when})(handler, number)

    with Served({}, fault=dated) as server:
        file = RemoteFile(server.url("/f"))
        assert file.nbytes == len(DATA)
        with pytest.raises(FormatError, match="changed while it was in use"):
            file.read(FAR, 1000)


def test_retry_after_is_heeded():
    def busy(handler, _):
        handler.send(429, b"later", {"Retry-After": "1"})
        return True

    begun = time.monotonic()
    data, server = read_far(once(busy))
    assert data == DATA[FAR : FAR + 1000]
    assert [request.status for request in server.requests].count(429) == 1
    assert time.monotonic() - begun >= 1.0


def test_a_server_that_asks_for_too_much_patience_is_an_error():
    with pytest.raises(RemoteError, match="asks to wait 100,000 seconds"):
        read_far(lambda handler, _: handler.send(503, b"", {"Retry-After": "100000"}) or True)


def test_dates_in_retry_after_are_understood():
    when = email.utils.formatdate(time.time() - 5, usegmt=True)
    data, _ = read_far(once(lambda h, _: h.send(503, b"", {"Retry-After": when}) or True))
    assert data == DATA[FAR : FAR + 1000]


def test_tries_end():
    count = [0]

    def failing(handler, _):
        count[0] += 1
        return handler.send(500, b"") or True

    with pytest.raises(RemoteError, match="answers 500"):
        read_far(failing)
    assert count[0] == limits.TRIES


def test_a_server_that_stops_sending_is_an_error():
    def stall(handler, _):
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {FAR}-{FAR + 999}/{len(DATA)}")
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.flush()
        time.sleep(0.8)
        handler.close_connection = True
        return True

    with pytest.raises(RemoteError, match="stopped sending"):
        read_far(stall)


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_server_that_sends_drop_by_drop_is_an_error(part):
    def drip(handler, _):
        head = f"HTTP/1.1 206 ok\r\nContent-Range: bytes {FAR}-{FAR + 999}/{len(DATA)}\r\n"
        head += "Content-Length: 1000\r\n\r\n"
        if part == "body":
            handler.wfile.write(head.encode())
            handler.wfile.flush()
        for byte in head.encode()[:12]:
            time.sleep(0.1)
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
        handler.close_connection = True
        return True

    with pytest.raises(RemoteError, match=r"sends too slowly|stopped sending"):
        read_far(drip)


def test_many_short_requests_do_not_stretch_a_read(monkeypatch):
    monkeypatch.setattr(limits, "ALL_WAITS", 1.0)

    def byte_by_byte(handler, number):
        if number % 2:
            return handler.send(503, b"", {"Retry-After": "1"}) or True
        start = int(handler.headers["Range"].removeprefix("bytes=").partition("-")[0])
        return ranged(start, start + 1)(handler, number)

    with (
        Served({"/f": DATA}, fault=later(byte_by_byte)) as server,
        pytest.raises(RemoteError, match=r"answers 503|ended early"),
    ):
        RemoteFile(server.url("/f")).read(FAR, 1000)
    assert len(server.requests) < 10


def test_waits_that_a_server_asks_for_do_not_count_as_slow():
    def busy(handler, number):
        wait = number in (2, 3)
        return wait and (handler.send(503, b"", {"Retry-After": "1"}) or True)

    data, _ = read_far(busy)
    assert data == DATA[FAR : FAR + 1000]


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "1e3", "\u00b2", ""])
def test_a_length_that_is_no_sensible_number_is_refused(length, tmp_path):
    def claim(handler, _):
        head = f"HTTP/1.1 200 ok\r\nContent-Length: {length}\r\n\r\n"
        handler.wfile.write(head.encode("latin-1") + b"GGUF")
        handler.close_connection = True
        return True

    with Served({}, fault=claim) as server:
        with pytest.raises(NoRangesError):
            RemoteFile(server.url("/f")).load(1)
        with pytest.raises(RemoteError, match="does not state the size"):
            download(server.url("/f"), tmp_path / "f")


@pytest.mark.parametrize("size", ["9" * 5000, "\u0663", "1" * 20])
def test_a_range_with_numbers_without_sense_is_refused(size):
    def claim(handler, _):
        head = f"HTTP/1.1 206 ok\r\nContent-Range: bytes 0-0/{size}\r\nContent-Length: 1\r\n\r\n"
        handler.wfile.write(head.encode() + b"G")
        handler.close_connection = True
        return True

    with (
        Served({}, fault=claim) as server,
        pytest.raises(RemoteError, match="other bytes than requested"),
    ):
        RemoteFile(server.url("/f")).load(1)


@pytest.mark.parametrize("text", ["9" * 5000, "-5", "Tue, 99 Nov 99999 00:00:00", ", ", "\u00b2"])
def test_a_retry_after_without_sense_is_no_crash(text):
    def busy(handler, _):
        head = f"HTTP/1.1 503 busy\r\nRetry-After: {text}\r\nContent-Length: 0\r\n\r\n"
        handler.wfile.write(head.encode("latin-1"))
        return True

    with pytest.raises(RemoteError, match="answers 503"):
        read_far(busy)


def test_compressed_ranges_are_refused():
    with pytest.raises(RemoteError, match="in the form 'gzip'"):
        read_far(ranged(FAR, FAR + 1000, **{"Content-Encoding": "gzip"}))
    with pytest.raises(RemoteError, match="in the form 'multipart/byteranges"):
        read_far(ranged(FAR, FAR + 1000, **{"Content-Type": "multipart/byteranges; boundary=x"}))


def test_answers_that_are_not_http_are_an_error():
    def noise(handler, _):
        handler.wfile.write(b"\x00\xff not http " + b"x" * 60_000 + b"\r\n\r\n")
        handler.close_connection = True
        return True

    with pytest.raises(RemoteError, match="cannot be read") as caught:
        read_far(noise)
    assert len(str(caught.value)) < 1000


def test_refusals_are_errors_of_their_own():
    for status, error in ((401, RemoteDeniedError), (403, RemoteDeniedError)):
        with Served({}, fault=lambda h, _, s=status: h.send(s, b"") or True) as server:
            with pytest.raises(error, match=str(status)):
                RemoteFile(server.url("/f")).load(1)
            assert len(server.requests) == 1
    with Served({}) as server, pytest.raises(RemoteMissingError):
        RemoteFile(server.url("/f")).load(1)
    with (
        Served({}, fault=lambda h, _: h.send(418, bytes(1 << 22)) or True) as server,
        pytest.raises(RemoteError, match="418"),
    ):
        RemoteFile(server.url("/f")).load(1)


def test_an_empty_file_is_empty():
    with Served({"/f": b""}) as server:
        file = RemoteFile(server.url("/f"))
        file.load(100)
        assert (file.nbytes, file.data) == (0, b"")


def test_a_closed_connection_is_opened_again():
    def closing(handler, _):
        handler.close_connection = True
        return False

    with Served({"/f": DATA}, fault=closing) as server:
        file = RemoteFile(server.url("/f"))
        assert [bytes(file.read(FAR + n, 9)) for n in range(5)] == [
            DATA[FAR + n :][:9] for n in range(5)
        ]


def test_connections_are_kept():
    with Served({"/f": DATA}) as server:
        file = RemoteFile(server.url("/f"))
        for number in range(5):
            file.read(FAR + number, 10)
        assert server.connections == 1


def test_a_long_wait_is_told(monkeypatch):
    monkeypatch.setattr(limits, "WARN_SECONDS", 0.0)

    def busy(handler, _):
        return handler.send(503, b"", {"Retry-After": "0"}) or True

    with pytest.warns(WaitingWarning, match="answers 503 .*; trying again in 0 seconds"):
        read_far(once(busy))


def test_an_old_connection_is_not_used_again(monkeypatch):
    with Served({"/f": DATA}) as server:
        file = RemoteFile(server.url("/f"))
        assert file.nbytes == len(DATA)
        monkeypatch.setattr(limits, "IDLE_SECONDS", 0.0)
        file.read(FAR, 10)
        assert server.connections == 2
