"""Where redirects may lead, and who gets a login."""

from __future__ import annotations

import pytest

from ggufkit.errors import RemoteError
from ggufkit.remote import trust
from ggufkit.remote.remote_file import RemoteFile
from ggufkit.remote.url import Login, Url
from ranged_server import Served

DATA = bytes(range(256)) * 10


def to(location, status=302):
    """Return a fault that redirects /go."""

    def redirect(handler, _):
        if handler.path.startswith("/go"):
            handler.send(status, b"moved", {"Location": location})
            return True
        return False

    return redirect


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_remembered(status):
    with Served({"/f": DATA}, fault=to("/f?signed=1", status)) as server:
        file = RemoteFile(server.url("/go"), first_bytes=100)
        assert bytes(file.read(200, 50)) == DATA[200:250]
        assert [each.path for each in server.requests] == ["/go", "/f?signed=1", "/f?signed=1"]


def test_an_address_that_is_no_longer_valid_is_asked_for_again():
    def expiring(handler, number):
        if handler.path == "/go":
            handler.send(302, b"", {"Location": f"/f?{number}"})
            return True
        if number == 3:
            handler.send(403, b"expired")
            return True
        return False

    with Served({"/f": DATA}, fault=expiring) as server:
        file = RemoteFile(server.url("/go"), first_bytes=100)
        assert bytes(file.read(200, 50)) == DATA[200:250]
        assert [each.path for each in server.requests] == ["/go", "/f?1", "/f?1", "/go", "/f?4"]


def test_a_circle_of_redirects_ends():
    with (
        Served({}, fault=to("/go/again")) as server,
        pytest.raises(RemoteError, match="redirects more than 8 times"),
    ):
        RemoteFile(server.url("/go")).load(1)
    assert len(server.requests) == 9


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://host/x", "data:,x", "gopher://h", "javascript:x"]
)
def test_redirects_lead_to_http_only(location):
    with (
        Served({}, fault=to(location)) as server,
        pytest.raises(RemoteError, match=r"not http\(s\)|not an http\(s\) URL"),
    ):
        RemoteFile(server.url("/go")).load(1)


def test_the_login_goes_to_its_own_server_alone():
    with Served({"/f": DATA}) as other, Served({}, fault=to(other.url("/f"))) as server:
        origin = Url.parse(server.url("/")).origin
        file = RemoteFile(server.url("/go"), login=Login(origin, "Bearer secret"))
        assert file.nbytes == len(DATA)
        assert server.requests[0].headers["authorization"] == "Bearer secret"
        assert "authorization" not in other.requests[0].headers


def test_a_password_in_a_url_is_sent_and_not_shown():
    with Served({"/f": DATA}) as server:
        url = server.url("/f").replace("http://", "http://me:hush@") + "?token=secret"
        file = RemoteFile(url)
        assert file.nbytes == len(DATA)
        assert server.requests[0].headers["authorization"].startswith("Basic ")
        assert server.requests[0].path == "/f?token=secret"
        for text in (str(file.path), repr(file.url), str(file.identity)):
            assert "hush" not in text
            assert "secret" not in text
    with pytest.raises(RemoteError) as caught:
        RemoteFile(url + "x").load(1)
    assert "hush" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Login(("http", "h", 80), "Bearer secret"))


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("169.254.169.254", True),
        ("fe80::1%eth0", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", True),  # noqa: S104 (an address to refuse)
        ("192.0.2.1", False),
        ("2001:db8::1", False),
        ("host.example", False),
    ],
)
def test_addresses_of_this_machine_and_its_links_are_known(address, inside):
    assert trust.is_inside(address) is inside


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]"])
def test_a_redirect_from_elsewhere_does_not_lead_to_this_machine(host):
    public = Url.parse("http://192.0.2.1/model.gguf")
    with pytest.raises(RemoteError, match="an address of this machine"):
        trust.redirected(public, f"http://{host}/x")
    assert trust.redirected(public, "http://192.0.2.2/x").host == "192.0.2.2"


def test_a_redirect_does_not_drop_encryption():
    with pytest.raises(RemoteError, match="not encrypted"):
        trust.redirected(Url.parse("https://192.0.2.1/x"), "http://192.0.2.1/x")
