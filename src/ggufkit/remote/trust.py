"""Whom to trust: where redirects may lead, and which server gets a login."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable

from ggufkit.errors import RemoteError
from ggufkit.remote.url import Url, scheme_of, shown


def is_inside(address: str) -> bool:
    """Whether an address is this machine's own or link-local: no server of the public is there."""
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(number, "ipv4_mapped", None)
    found = mapped or number
    return found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast


def addresses(url: Url) -> set[str]:
    """Return the addresses of a URL's host, none if the name is unknown here."""
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        return {str(each[4][0]) for each in found}
    return set()


def leads_inside(url: Url) -> bool:
    """Whether a URL leads to this machine or a link-local address."""
    return any(is_inside(each) for each in (url.host, *addresses(url)))


def require_outside(url: Url, reason: str) -> None:
    """Raise RemoteError for a URL of unknown origin that leads to this machine or its links."""
    if leads_inside(url):
        raise RemoteError(
            f"{reason} leads to {url}, an address of this machine or its own network",
            remedy="Open that address yourself if you trust it",
        )


def redirected(url: Url, location: str) -> Url:
    """Return where a redirect leads; RemoteError where it must not be followed.

    It may lead to http and https only, not from https to http, and not from another machine to
    this one.
    """
    scheme = scheme_of(location)
    if scheme not in ("", "http", "https"):
        raise RemoteError(
            f"{url} redirects to {shown(location)}, which is not http(s)",
            remedy="The server is wrong or hostile: get the file from elsewhere",
        )
    target = url.joined(location)
    if url.scheme == "https" and target.scheme == "http":
        raise RemoteError(
            f"{url} redirects to {target}, which is not encrypted",
            remedy="Open that address yourself if you trust it",
        )
    if target.host != url.host and not leads_inside(url):
        require_outside(target, f"a redirect of {url}")
    return target


def secrets_of(values: Iterable[str], text: str) -> str:
    """Return `text` without the secrets `values`."""
    for value in values:
        text = text.replace(value, "***") if value else text
    return text
