"""The TLS part of ldap.conf, which the system's LDAP programs and libraries obey too."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

FILES: Final = ("/etc/ldap/ldap.conf", "/etc/openldap/ldap.conf")


@dataclass(frozen=True, slots=True)
class LdapConf:
    """Who vouches for servers ("" = the system's store), and whether they are checked at all."""

    ca_file: str = ""
    ca_folder: str = ""
    verify: bool = True


def read_ldapconf(files: Iterable[str] = FILES, environment: Mapping[str, str] | None = None) -> LdapConf:
    """Read $LDAPCONF or the first file that exists; LDAPTLS_CACERT, _CACERTDIR and _REQCERT beat it."""
    environ = os.environ if environment is None else environment
    found: dict[str, str] = {}
    for path in (environ["LDAPCONF"],) if environ.get("LDAPCONF") else files:
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                found = _options(file)
            break
        except OSError:
            continue
    for name in ("TLS_CACERT", "TLS_CACERTDIR", "TLS_REQCERT"):
        found[name] = environ.get("LDAP" + name) or found.get(name, "")
    verify = found["TLS_REQCERT"].lower() not in ("never", "allow", "try")
    return LdapConf(found["TLS_CACERT"], found["TLS_CACERTDIR"], verify)


def _options(lines: Iterable[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        name, _, value = line.strip().partition(" ") if "\t" not in line else line.strip().partition("\t")
        if name and not name.startswith("#"):
            found[name.upper()] = value.strip()
    return found
