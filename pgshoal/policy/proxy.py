"""Whose word is taken for the addresses of a client."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_balancer(networks: Iterable[Network], host: str) -> bool:
    """Whether a peer with this address is one that sends a PROXY header before everything else."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any(address in network or (mapped is not None and mapped in network) for network in networks)
