"""Whether the server connections a configuration allows fit what its PostgreSQL servers have: facts in, verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pgshoal.config import effective
from pgshoal.config.model import Config, DatabaseConfig

Place = tuple[str, int]
#: Names shown before "...", so that a line stays a line.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool that clients may cause: `slots` is pool_size and its reserve, None without a limit.

    `user` "" stands for `count` users who have no settings of their own, each with such a pool.
    """

    database: str  # the entry's name; "*" for the template
    dbname: str | None  # on the server; None where each client names its own
    user: str
    slots: int | None
    places: tuple[Place, ...]
    count: int = 1

    @property
    def total(self) -> int | None:
        """Slots of all that it stands for."""
        return None if self.slots is None else self.slots * self.count


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """Of a role: its connection limit (-1 none), and whether no limit holds for it."""

    limit: int = -1
    superuser: bool = False


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What one PostgreSQL says of itself. Two addresses with the same `instance` are one server."""

    version: str
    max_connections: int
    superuser_reserved: int
    reserved: int = 0
    databases: Mapping[str, int] = field(default_factory=dict)  # name -> datconnlimit
    roles: Mapping[str, RoleFacts] = field(default_factory=dict)
    instance: str = ""

    @property
    def available(self) -> int:
        """Connections for roles without privileges."""
        return max(0, self.max_connections - self.superuser_reserved - self.reserved)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One limit of one server: `possible` connections (None: no limit) against those that are `allowed`."""

    places: tuple[Place, ...]
    subject: str  # "server", 'database "x"' or 'role "x"'
    possible: int | None
    allowed: int
    reason: str  # what makes `allowed`
    advice: str  # what would make it fit
    version: str = ""

    @property
    def fits(self) -> bool:
        """Whether all that is possible is allowed."""
        return self.possible is not None and self.possible <= self.allowed

    def line(self) -> str:
        """One sentence for the log."""
        where = " = ".join(place_text(place) for place in self.places)
        subject = "" if self.subject == "server" else f"{self.subject}: "
        count = "any number of" if self.possible is None else str(self.possible)
        text = f"server {where}: {subject}{count} server connections are possible, {self.allowed} fit ({self.reason})"
        return text if self.fits else f"{text}: {self.advice}"


def place_text(place: Place) -> str:
    """host:port, or the socket's folder and the port."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- what is possible


def pools(config: Config, apart: Collection[str] = ()) -> list[Pool]:
    """Every pool that the users known from the files can make; each user of an unforced entry has one.

    Users of whom nothing special is known are counted together, unless they are named in `apart`.
    """
    known = dict.fromkeys(known_users(config))
    special = _special(config).union(apart)
    alone = [user for user in known if user in special]
    together = len(known) - len(alone)
    found = [pool for entry in _entries(config) for pool in _pools_of(config, entry, alone, together)]
    return list({(pool.database, pool.user): pool for pool in found}.values())


def known_users(config: Config) -> list[str]:
    """Who may log in, as far as the files tell."""
    return list(dict.fromkeys((*config.secrets, *config.users)))


def plain_users(config: Config) -> list[str]:
    """Those who are counted together."""
    special = _special(config)
    return [user for user in known_users(config) if user not in special]


def _special(config: Config) -> set[str]:
    entries = list(_entries(config))
    forced = {entry.user for entry in entries if entry.user is not None}
    lookups = {user for entry in entries if (user := effective.auth_user(config, entry)) is not None}
    return {*config.users, *forced, *lookups}


def _entries(config: Config) -> Iterator[DatabaseConfig]:
    yield from config.databases.values()
    if config.autodb is not None:
        yield config.autodb


def _pools_of(config: Config, entry: DatabaseConfig, alone: Iterable[str], together: int) -> Iterator[Pool]:
    for user in alone if entry.user is None else (entry.user,):
        yield _pool(config, entry, user)
    if entry.user is None and together:
        yield replace(_pool(config, entry, ""), count=together)
    lookup = effective.auth_user(config, entry)
    if lookup is not None:
        name = effective.auth_dbname(config, entry)
        home = config.databases.get(name, entry) if name != entry.name else entry
        yield _pool(config, home, lookup)


def _pool(config: Config, entry: DatabaseConfig, user: str) -> Pool:
    size = effective.pool_size(config, entry, user)
    slots = size + effective.reserve_pool_size(config, entry, user) if size else None
    places = tuple((host, entry.port) for host in effective.server_hosts(config, entry))
    template = entry is config.autodb
    return Pool("*" if template else entry.name, entry.dbname if template else entry.server_dbname, user, slots, places)


def most(config: Config, chosen: Iterable[Pool]) -> int | None:
    """The most connections these pools have together under the limits of databases and users; None without a limit."""
    by_database: dict[str, list[int | None]] = {}
    by_user: dict[str, list[int | None]] = {}
    counts: dict[str, int] = {}
    for pool in chosen:
        by_database.setdefault(pool.database, []).append(pool.total)
        by_user.setdefault(pool.user, []).append(pool.slots)
        counts[pool.user] = pool.count
    limits = {entry.name: effective.max_db_connections(config, entry) for entry in config.databases.values()}
    # Each database of the template has a limit of its own; the template is counted as one of them.
    if config.autodb is not None:
        limits["*"] = effective.max_db_connections(config, config.autodb)
    databases = _total(_bounded(slots, limits.get(name, 0)) for name, slots in by_database.items())
    users = _total(
        None if (each := _bounded(slots, effective.max_user_connections(config, name))) is None else each * counts[name]
        for name, slots in by_user.items()
    )
    return min((total for total in (databases, users) if total is not None), default=None)


def _bounded(slots: Iterable[int | None], limit: int) -> int | None:
    total = _total(slots)
    if not limit:
        return total
    return limit if total is None else min(total, limit)


def _total(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def assumptions(config: Config) -> list[str]:
    """What the numbers rest on, where the file alone does not tell."""
    said = []
    entries = list(_entries(config))
    users = known_users(config)
    if any(entry.user is None for entry in entries):
        names = f"{len(users)} user{'' if len(users) == 1 else 's'} of auth_file and [users]"
        said.append(f"entries without user=: one pool for each of the {names}")
        if any(effective.auth_user(config, entry) for entry in entries):
            said.append("users that auth_query finds are not counted: each adds a pool")
        elif config.settings.auth_type == "any" or not users:
            said.append("users that are in no file are not counted")
    if config.autodb is not None:
        said.append("* is counted as one database: each further one adds as much")
    if any(len(effective.server_hosts(config, entry)) > 1 for entry in entries):
        said.append("entries with several hosts: each host may have to take all")
    if config.peers:
        said.append("this configuration alone is counted, not its peers")
    return said


# -- whether it fits


def assess(config: Config, facts: Mapping[Place, ServerFacts]) -> list[Verdict]:
    """A verdict for each server, and for each of its databases and roles that has a limit of its own."""
    all_pools = pools(config, apart={role for server in facts.values() for role in server.roles})
    servers: dict[str, list[Place]] = {}
    for place, server in facts.items():
        servers.setdefault(server.instance or place_text(place), []).append(place)
    found: list[Verdict] = []
    for places in servers.values():
        here = [pool for pool in all_pools if not set(places).isdisjoint(pool.places)]
        found.extend(_verdicts(config, tuple(places), facts[places[0]], here))
    return found


def _verdicts(config: Config, places: tuple[Place, ...], server: ServerFacts, here: list[Pool]) -> Iterator[Verdict]:
    reason = f"max_connections {server.max_connections} - superuser_reserved_connections {server.superuser_reserved}"
    if server.reserved:
        reason += f" - reserved_connections {server.reserved}"
    possible = most(config, here)
    yield Verdict(places, "server", possible, server.available, reason, _advice(here), server.version)
    ordinary = [pool for pool in here if not server.roles.get(pool.user, RoleFacts()).superuser]
    for dbname in dict.fromkeys(pool.dbname for pool in ordinary if pool.dbname is not None):
        limit = server.databases.get(dbname, -1)
        if limit >= 0:
            chosen = [pool for pool in ordinary if pool.dbname == dbname]
            advice = f"raise its CONNECTION LIMIT, or set max_db_connections for {_names(p.database for p in chosen)}"
            yield Verdict(places, f'database "{dbname}"', most(config, chosen), limit, "CONNECTION LIMIT", advice)
    for user in dict.fromkeys(pool.user for pool in ordinary):
        limit = server.roles.get(user, RoleFacts()).limit
        if limit >= 0:
            chosen = [pool for pool in ordinary if pool.user == user]
            advice = f"raise its CONNECTION LIMIT, or set max_user_connections for {user}"
            yield Verdict(places, f'role "{user}"', most(config, chosen), limit, "CONNECTION LIMIT", advice)


def missing(config: Config, facts: Mapping[Place, ServerFacts]) -> list[str]:
    """Entries whose database a server does not have."""
    lost: Counter[tuple[str, str, Place]] = Counter()
    for pool in pools(config):
        for place in pool.places:
            if pool.dbname is not None and place in facts and pool.dbname not in facts[place].databases:
                lost[pool.database, pool.dbname, place] += 1
    return [f'{entry}: server {place_text(place)} has no database "{name}"' for entry, name, place in lost]


def _advice(here: list[Pool]) -> str:
    sizes: Counter[str] = Counter()
    for pool in here:
        total = pool.total
        sizes[pool.database] += 1_000_000_000 if total is None else total
    largest = [name for name, _ in sizes.most_common()]
    return f"lower pool_size or set max_db_connections for {_names(largest)}, or raise max_connections"


def _names(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:_SHOWN]) + (", ..." if len(distinct) > _SHOWN else "")
