"""Tests for pgshoal.policy.proxy."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from pgshoal.policy.proxy import is_balancer

NETWORKS = (ip_network("10.0.0.0/8"), ip_network("192.0.2.7"), ip_network("2001:db8::/32"))


@pytest.mark.parametrize("host", ["10.1.2.3", "192.0.2.7", "2001:db8::7", "::ffff:10.1.2.3"])
def test_balancers(host: str) -> None:
    """Inside one of the networks, also where an IPv4 address comes through an IPv6 socket."""
    assert is_balancer(NETWORKS, host)


@pytest.mark.parametrize("host", ["11.1.2.3", "192.0.2.8", "2001:db9::7", "::1", "unix", "", "fe80::1%eth0"])
def test_others(host: str) -> None:
    """Everybody else, and what is no address."""
    assert not is_balancer(NETWORKS, host)
    assert not is_balancer((), host)
