"""Where redirects may lead, and who gets a login."""

from __future__ import annotations

import socket

import pytest

from ggufkit.errors import RemoteError
from ggufkit.remote import connections, trust
from ggufkit.remote.connections import POOL
from ggufkit.remote.remote_file import RemoteFile
from ggufkit.remote.trust import Zone
from ggufkit.remote.url import Login, Url
from ranged_server import Served

DATA = bytes(range(256)) * 10

GLOBAL = (
    *("8.8.8.8", "192.31.196.1", "192.52.193.1", "192.175.48.1", "172.32.0.1", "host.example"),
    *("2606:4700::1", "2620:4f:8000::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"),
)
NETWORK = (
    *("10.0.0.1", "100.64.0.1", "172.31.0.1", "192.0.0.1", "192.0.2.1", "192.88.99.1"),
    *("192.168.0.1", "198.19.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.255"),
    *(
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001:0:808:808::f7f7:f7f7",
        "2001:2::1",
        "2001:db8::1",
    ),
    *("2002:a00:1::1", "3fff::1", "5f00::1", "fc00::1", "fec0::1", "4000::1", "::8.8.8.8"),
)
LINK = (
    *("169.254.169.254", "224.0.0.1", "fe80::1%eth0", "ff02::1", "fd00:ec2::254", "fd20:ce::254"),
    *("100.100.100.200", "168.63.129.16", "192.0.0.192", "::ffff:169.254.169.254"),
    *("64:ff9b::169.254.169.254", "64:ff9b:1::169.254.169.254", "2002:a9fe:a9fe::1"),
)
MACHINE = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "::", "::1", "::127.0.0.1"),  # noqa: S104
    *("::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::"),
    *("2001:0:7f00:1::", "2001:0:808:808::80ff:fffe"),
)


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
        assert [request.path for request in server.requests] == [
            "/go",
            "/f?signed=1",
            "/f?signed=1",
        ]


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
        assert [request.path for request in server.requests] == [
            "/go",
            "/f?1",
            "/f?1",
            "/go",
            "/f?4",
        ]


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
    ("address", "zone"),
    [
        *((address, Zone.PUBLIC) for address in GLOBAL),
        *((address, Zone.NETWORK) for address in NETWORK),
        *((address, Zone.LINK) for address in LINK),
        *((address, Zone.MACHINE) for address in MACHINE),
    ],
)
def test_each_family_of_special_addresses_has_a_zone(address, zone):
    assert trust.zone_of(address) is zone


def test_an_address_of_this_machine_is_known_whatever_it_is():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        address = probe.getsockname()
    assert trust.zone_of_socket_address(socket.AF_INET, address) is Zone.MACHINE
    assert trust.zone_of_socket_address(socket.AF_INET, ("8.8.8.8", 80)) is Zone.PUBLIC


@pytest.fixture
def public(monkeypatch):
    """The ports of this machine that count as servers of the public."""
    ports = set()

    def zone(family, address):
        real = trust.zone_of_socket_address(family, address)
        return Zone.PUBLIC if address[1] in ports else real

    monkeypatch.setattr(connections, "zone_of_socket_address", zone)
    POOL.close()
    yield ports
    POOL.close()


def port_of(server):
    return Url.parse(server.url("/")).port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "127.1"])  # noqa: S104
def test_a_redirect_of_a_public_server_does_not_lead_inside(public, host):
    with Served({"/f": DATA}) as inside:
        location = f"http://{host}:{port_of(inside)}/f"
        with Served({"/f": DATA}, fault=to(location)) as server:
            public.add(port_of(server))
            with pytest.raises(RemoteError, match="an address of this machine"):
                RemoteFile(server.url("/go")).load(1)
            assert RemoteFile(server.url("/f")).nbytes == len(DATA)
        assert not inside.connections


def test_a_redirect_leads_from_one_public_server_to_another(public):
    with Served({"/f": DATA}) as other, Served({}, fault=to(other.url("/f"))) as server:
        public.update((port_of(other), port_of(server)))
        assert RemoteFile(server.url("/go")).nbytes == len(DATA)


def test_a_way_that_was_public_once_stays_public(public):
    with Served({"/f": DATA}) as inside, Served({}, fault=to(inside.url("/f"))) as middle:
        with Served({}, fault=to(middle.url("/go"))) as server:
            public.update((port_of(server), port_of(middle)))
            with pytest.raises(RemoteError, match="an address of this machine"):
                RemoteFile(server.url("/go")).load(1)
        assert not inside.connections


def test_a_connection_that_is_open_already_is_checked_too(public):
    with Served({"/f": DATA}) as inside:
        assert RemoteFile(inside.url("/f")).nbytes == len(DATA)
        with Served({}, fault=to(inside.url("/f"))) as server:
            public.add(port_of(server))
            with pytest.raises(RemoteError, match="an address of this machine"):
                RemoteFile(server.url("/go")).load(1)
        assert len(inside.requests) == 1


def test_a_name_that_changes_its_address_after_a_redirect_leads_nowhere(public):
    with Served({"/f": DATA}) as other, Served({}, fault=to(other.url("/f"))) as server:
        public.update((port_of(other), port_of(server)))
        file = RemoteFile(server.url("/go"), first_bytes=100)
        assert file.nbytes == len(DATA)
        public.remove(port_of(other))
        POOL.close()
        with pytest.raises(RemoteError, match="an address of this machine"):
            file.read(200, 50)
        assert len(other.requests) == 1


def test_a_name_is_resolved_once_for_each_connection(public, monkeypatch):
    lookups = []
    resolve = socket.getaddrinfo

    def count(host, *args, **options):
        lookups.append(host)
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", count)
    with Served({"/f": DATA}) as other, Served({}, fault=to(other.url("/f"))) as server:
        public.update((port_of(other), port_of(server)))
        assert RemoteFile(server.url("/go")).nbytes == len(DATA)
    assert lookups == ["127.0.0.1"] * 2


def test_a_redirect_through_a_proxy_does_not_lead_inside(monkeypatch):
    locations = {"8.8.8.8": "http://169.254.169.254/f", "10.1.2.3": "http://10.1.2.4/f"}

    def redirect(handler, _):
        location = locations.get(Url.parse(handler.path).host)
        return handler.send(302, b"", {"Location": location}) or True if location else False

    with Served({"http://10.1.2.4/f": DATA}, fault=redirect) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url(""))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        POOL.close()
        with pytest.raises(RemoteError, match="its own network"):
            RemoteFile("http://8.8.8.8/go").load(1)
        assert RemoteFile("http://10.1.2.3/go").nbytes == len(DATA)
        POOL.close()


def test_a_redirect_does_not_drop_encryption():
    with pytest.raises(RemoteError, match="not encrypted"):
        trust.redirected(Url.parse("https://192.0.2.1/x"), "http://192.0.2.1/x")
