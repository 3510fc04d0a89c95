"""A target made to run: poolers as the cell says, their budget divided, their addresses, processes and consoles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import psycopg

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Cell, NotHere
from pgshoal.bench.targets.balancer import Balancer, program
from pgshoal.bench.targets.fleets import introduce, members, pin
from pgshoal.bench.targets.listeners import pooler_roots
from pgshoal.bench.targets.options import Options, parts, read
from pgshoal.bench.targets.poolers import ADMIN, ADMIN_PASSWORD, Servers, bouncer, pooler_of
from pgshoal.bench.targets.servers import SCRAM_USER
from pgshoal.demo.pgbench import Target as Address
from pgshoal.demo.pooler import Pooler

if TYPE_CHECKING:
    from pgshoal.bench.stand import Stand

#: A primary and its standby, as clients ask for them.
WRITER: Final = "writer"
READER: Final = "reader"


@dataclass(frozen=True)
class Opened:
    """A target that runs. Without poolers of ours it is PostgreSQL itself, or a pooler that somebody else runs."""

    cell: Cell
    addresses: Mapping[str, Address]
    poolers: Mapping[str, Pooler] = field(default_factory=dict)  # by the name of their address
    balancer: Balancer | None = None
    theirs: Mapping[str, int] = field(default_factory=dict)  # processes of somebody else's pooler, by name

    def address(self, name: str = "main") -> Address:
        """Where and how clients connect, as the cell's user; KeyError for a name that this target does not have.

        Always: `main`. Isolated: `exports`. Of several nodes: `node1`, `node2` past the balancer. With a standby:
        `writer` and `reader`, which are databases of those names at `main`, and of a direct target both servers.
        """
        return self.addresses[name]

    def roots(self) -> Mapping[str, int]:
        """The processes that poolers were started as, by name; their children are theirs too. Empty when not known."""
        found = dict(self.theirs)
        for name, pooler in self.poolers.items():
            several = members(pooler)
            for number, one in enumerate(several):
                found[f"{name}/{number}" if len(several) > 1 else name] = one.pid
        return found

    @property
    def running(self) -> bool:
        """Whether all that was started for this target is alive."""
        return all(one.running for one in (*self.poolers.values(), self.balancer) if one is not None)

    def log_text(self) -> str:
        """What poolers of ours have logged so far."""
        return "".join(pooler.log_text() for pooler in self.poolers.values())

    def console(self, name: str = "") -> psycopg.Connection[Any] | None:
        """A connection to a pooler's admin console, of a PgBouncer fleet one of them; None for what is not ours.

        Without a name it is the first pooler's; a name is that of an address.
        """
        if not self.poolers:
            return None
        pooler = self.poolers[name] if name else next(iter(self.poolers.values()))
        facts: dict[str, Any] = {"host": pooler.socket_dir, "port": pooler.port, "user": ADMIN, "dbname": "pgbouncer"}
        return psycopg.connect(autocommit=True, password=ADMIN_PASSWORD, connect_timeout=10, **facts)


@contextmanager
def opened(stand: Stand, cell: Cell, knobs: Knobs) -> Iterator[Opened]:
    """Starts what the cell says, and stops it; NotHere when that cannot be had here.

    Options of a target: engine, budget (elastic, static), accept (least, kernel, pack), pin (on, off), peers (on, off:
    whether PgBouncers know each other, and nodes), isolated = on (one process of its own for `exports`) and
    standby = on (a standby of the stand's PostgreSQL, as the database `reader`).
    """
    check(stand, cell, knobs)
    options = read(cell.target, knobs)
    with ExitStack() as stack:
        servers: dict[str, tuple[str, int]] = {}
        if options.standby:
            follower = stack.enter_context(stand.standby())
            servers = {WRITER: (stand.host, stand.port), READER: (follower.host, follower.port)}
        if cell.target.kind == "direct":
            yield Opened(cell, direct(stand, cell, servers))
        elif cell.target.kind == "address":
            main = somebodys(stand, cell)
            yield Opened(cell, {"main": main}, theirs=pooler_roots(main.host, main.port))
        else:
            yield started(stand, cell, knobs, options, servers, stack)


def check(stand: Stand, cell: Cell, knobs: Knobs) -> None:
    """NotHere, with what is missing, when the cell cannot be run on this stand; nothing is started."""
    target = cell.target
    if cell.tls != "none" and stand.tls_folder is None:
        raise NotHere("the PostgreSQL programs found here were built without TLS")
    if (cell.tls in ("server", "both") or (cell.tls != "none" and target.kind == "direct")) and not stand.server_tls:
        raise NotHere(f"PostgreSQL at {stand.host} port {stand.port} does not offer TLS")
    if cell.user == SCRAM_USER and not stand.scram_secret:
        raise NotHere(f"a given PostgreSQL gets no role {SCRAM_USER}")
    if dict(target.options).get("standby") == "on" and not stand.own:
        raise NotHere("a standby is made only of a PostgreSQL that the kit runs")
    if target.kind == "address" and stand.own:
        raise NotHere(f"the PostgreSQL behind {target.address} is not known: --pg-host and --pg-port name it")
    if target.kind == "pgbouncer":
        bouncer(knobs)
    if target.nodes > 1:
        program()


def started(stand: Stand, cell: Cell, knobs: Knobs, options: Options, servers: Servers, stack: ExitStack) -> Opened:
    """Poolers of ours, and the balancer before them; the stack stops what was started, also after a failure here."""
    poolers: dict[str, Pooler] = {}
    for part in parts(cell.target, options):
        poolers[part.name] = pooler_of(stand, cell, knobs, options, part, servers)
        stack.callback(poolers[part.name].remove)
    if options.peers:
        groups = [list(poolers.values())] if cell.target.nodes > 1 else [[one] for one in poolers.values()]
        for group in groups:
            introduce(group)
    for one in poolers.values():
        one.start()
    if options.pin:
        pin(poolers.values())
    places = {name: (one.host, one.port) for name, one in poolers.items()}
    balancer = None
    if cell.target.nodes > 1:
        balancer = stack.enter_context(Balancer(list(places.values())))
        places["main"] = (balancer.host, balancer.port)
    main = pooled(stand, cell)
    addresses = {name: replace(main, host=host, port=port) for name, (host, port) in places.items()}
    addresses |= {name: replace(addresses["main"], dbname=name) for name in servers}
    return Opened(cell, addresses, poolers, balancer)


def user_of(stand: Stand, cell: Cell) -> str:
    """The cell's user; `postgres` stands for the superuser, whatever its name is here."""
    return stand.superuser if cell.user == "postgres" else cell.user


def pooled(stand: Stand, cell: Cell) -> Address:
    """How clients connect to poolers of ours; host and port are still PostgreSQL's."""
    user = user_of(stand, cell)
    environment = {"PGSSLMODE": "disable", "PGPASSWORD": stand.password_of(user)}
    if cell.tls in ("client", "both"):
        environment.update(PGSSLMODE="verify-ca", PGSSLROOTCERT=f"{stand.tls_folder}/ca.crt")
    return Address(stand.host, stand.port, user, stand.dbname, tuple(environment.items()))


def direct(stand: Stand, cell: Cell, servers: Servers) -> dict[str, Address]:
    """PostgreSQL itself; between it and a client TLS is on or off."""
    main = stand.address(user_of(stand, cell), tls=cell.tls != "none")
    return {"main": main, **{name: replace(main, host=host, port=port) for name, (host, port) in servers.items()}}


def somebodys(stand: Stand, cell: Cell) -> Address:
    """A pooler that somebody else runs, before the given PostgreSQL; ValueError when it is not HOST:PORT."""
    host, _, port = cell.target.address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{cell.target.address} is not HOST:PORT")
    user = user_of(stand, cell)
    mode = "require" if cell.tls in ("client", "both") else "disable"
    environment = (("PGSSLMODE", mode), ("PGPASSWORD", stand.password_of(user)))
    return Address(host.strip("[]"), int(port), user, stand.dbname, environment)
