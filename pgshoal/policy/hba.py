"""Which line of the auth_hba_file decides about a client: the first that fits, or none."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from pgshoal.config.hba import HbaRule, Names, Network

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Approach:
    """A client as the lines look at it; `address` is empty for one on a Unix socket."""

    database: str
    user: str
    address: str
    tls: bool = False
    physical: bool = False
    """A physical replication connection: it is asked for no database, so only the word `replication` covers it."""


def decide(rules: Iterable[HbaRule], client: Approach) -> HbaRule | None:
    """The first rule that fits; None means that nobody said how this client may come in, so it may not."""
    addresses = _addresses(client.address)
    for rule in rules:
        if (
            _fits_kind(rule, client, addresses)
            and _fits_database(rule.databases, client)
            and _fits_user(rule.users, client)
        ):
            return rule
    return None


def _fits_kind(rule: HbaRule, client: Approach, addresses: tuple[_Address, ...]) -> bool:
    if not client.address or rule.kind == "local":
        return not client.address and rule.kind == "local"
    if rule.kind != "host" and (rule.kind == "hostssl") != client.tls:
        return False
    return rule.network is None or any(_inside(rule.network, address) for address in addresses)


def _fits_database(names: Names, client: Approach) -> bool:
    if client.physical:
        return "replication" in names.keywords
    if names.everybody or client.database in names.names:
        return True
    return "sameuser" in names.keywords and client.database == client.user


def _fits_user(names: Names, client: Approach) -> bool:
    if names.everybody or client.user in names.names:
        return True
    return "sameuser" in names.keywords and client.database == client.user


def _inside(network: Network, address: _Address) -> bool:
    return network.version == address.version and int(address) & network.mask == network.address


def _addresses(text: str) -> tuple[_Address, ...]:
    """The address; one of IPv4 that came through an IPv6 socket counts as both. What is no address fits no network."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return (address.ipv4_mapped, address)
    return (address,)
