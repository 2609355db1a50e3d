"""How far inside a network an address is, and where redirects may lead."""

from __future__ import annotations

import contextlib
import enum
import ipaddress
import socket
from typing import Any, Final, TypeAlias

from ggufkit.errors import RemoteError
from ggufkit.remote.url import Url, redacted, scheme_of

IPAddress: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


class Zone(enum.IntEnum):
    """From where an address can be reached. A redirect never leads to a higher zone."""

    PUBLIC = 0
    NETWORK = 1  # a private network, or any address that is not globally reachable
    LINK = 2  # the machines on one link, where clouds hand out credentials
    MACHINE = 3  # this machine alone


# IANA's registries of special-purpose addresses, without the globally reachable ones.
_SPECIAL: Final = {
    Zone.NETWORK: (
        *("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.51.100.0/24", "203.0.113.0/24"),
        *("240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20"),
    ),
    Zone.LINK: ("169.254.0.0/16", "224.0.0.0/4", "fe80::/10", "ff00::/8"),
    Zone.MACHINE: ("0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128"),
}
# Services for virtual machines at addresses outside the link: Alibaba, Azure, Oracle, AWS, Google.
_CLOUDS: Final = (
    *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
    *("fd00:ec2::/32", "fd20:ce::254/128"),
)
_NETWORKS: Final = tuple(
    (ipaddress.ip_network(text), zone)
    for zone, texts in {**_SPECIAL, Zone.LINK: (*_SPECIAL[Zone.LINK], *_CLOUDS)}.items()
    for text in texts
)
_GLOBAL: Final = ipaddress.IPv6Network("2000::/3")  # all IPv6 that IANA has assigned for the public
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# Networks whose addresses hold an IPv4 address, and the bits to the right of it.
_EMBEDDED: Final = tuple(
    (ipaddress.IPv6Network(text), shift)
    for text, shift in (
        ("::/96", 0),
        ("::ffff:0:0:0/96", 0),
        ("64:ff9b:1::/48", 0),
        ("2002::/16", 80),
    )
)
_UNASSIGNED: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def zone_of(address: str) -> Zone:
    """Return the zone of a numeric address; PUBLIC for a name."""
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return Zone.PUBLIC
    return _zone(number)


def _zone(number: IPAddress) -> Zone:
    zone = max((zone for network, zone in _NETWORKS if number in network), default=Zone.PUBLIC)
    if isinstance(number, ipaddress.IPv4Address):
        return zone
    if number.ipv4_mapped:
        return _zone(number.ipv4_mapped)
    if number in _NAT64:
        return _zone(_embedded(number, 0))
    inner = [_zone(_embedded(number, shift)) for network, shift in _EMBEDDED if number in network]
    inner += map(_zone, number.teredo or ())
    return max(zone, Zone.PUBLIC if number in _GLOBAL else Zone.NETWORK, *inner)


def _embedded(number: ipaddress.IPv6Address, shift: int) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int(number) >> shift & 0xFFFFFFFF)


def zone_of_socket_address(family: socket.AddressFamily, address: tuple[Any, ...]) -> Zone:
    """Return the zone of an address to connect to: all addresses of this machine are MACHINE."""
    is_own = _can_bind(family, address) and not _can_bind(family, (_UNASSIGNED[family], 0))
    return Zone.MACHINE if is_own else zone_of(str(address[0]))


def _can_bind(family: socket.AddressFamily, address: tuple[Any, ...]) -> bool:
    """Whether a socket can have this address: unless the system allows any, it must be its own."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address[0], 0, *address[2:]))
        return True
    return False


def zone_of_host(url: Url) -> Zone:
    """Return the highest zone of a URL's host; PUBLIC if its name is unknown here."""
    with contextlib.suppress(OSError):
        results = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        return max(zone_of_socket_address(family, address) for family, _, _, _, address in results)
    return Zone.PUBLIC


def require_zone(url: Url, zone: Zone, limit: Zone) -> None:
    """Raise RemoteError if a redirect leads to a higher zone than `limit`."""
    if zone > limit:
        raise RemoteError(
            f"a redirect leads to {url}, an address of this machine or its own network",
            remedy="Open that address yourself if you trust it",
        )


def redirected(url: Url, location: str) -> Url:
    """Return the target of a redirect; RemoteError where it must not be followed.

    It may lead to http and https only, and not from https to http. Its addresses are checked when
    they are connected.
    """
    scheme = scheme_of(location)
    if scheme not in ("", "http", "https"):
        raise RemoteError(
            f"{url} redirects to {redacted(location)}, which is not http(s)",
            remedy="The server is wrong or hostile: get the file from another server",
        )
    target = url.joined(location)
    if url.scheme == "https" and target.scheme == "http":
        raise RemoteError(
            f"{url} redirects to {target}, which is not encrypted",
            remedy="Open that address yourself if you trust it",
        )
    return target
