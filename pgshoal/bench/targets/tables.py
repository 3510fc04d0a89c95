"""Tables that loads read: made once, known again by their comment, and read into PostgreSQL's cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

What = Literal["pgbench", "events", "one_row"]
MARK: Final = "made by pgshoal bench"
#: Reads table and index by the index: a large table that is read in sequence does not stay in the cache.
BY_INDEX: Final = (
    "set enable_seqscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off;"
    " set max_parallel_workers_per_gather = 0"
)


@dataclass(frozen=True)
class Table:
    """How one kind of tables is made (by pgbench where there is no text), read, and removed."""

    names: tuple[str, ...]
    make: str
    read: str

    def comment(self, size: int) -> str:
        """By this the tables are known again."""
        return f"{MARK}, size {size}"

    @property
    def look(self) -> str:
        """Finds those that exist, and their comments."""
        names = ", ".join(f"'{name}'" for name in self.names)
        comment = "coalesce(obj_description(to_regclass(name), 'pg_class'), '')"
        return f"select name, {comment} from unnest(array[{names}]) name where to_regclass(name) is not null"

    @property
    def drop(self) -> str:
        """Removes them."""
        return f"drop table if exists {', '.join(self.names)}"


TABLES: Final[Mapping[What, Table]] = {
    "pgbench": Table(
        ("pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers"),
        "",
        "select count(abalance) from pgbench_accounts where aid > 0;"
        " select count(bbalance) from pgbench_branches where bid > 0;"
        " select count(tbalance) from pgbench_tellers where tid > 0",
    ),
    "events": Table(
        ("events",),
        "create table events (id bigint primary key, tenant_id integer not null, created_at timestamptz not null,"
        " event_type text not null);"
        " insert into events select n, n % 1000, timestamptz '2025-01-01 00:00+00' + n * interval '1 second',"
        " (array['click', 'view', 'login', 'purchase'])[1 + n % 4] from generate_series(1, {rows}) n",
        "select count(event_type) from events where id > 0",
    ),
    "one_row": Table(
        ("one_row",),
        "create table one_row (id integer primary key, word text not null); insert into one_row values (1, 'one')",
        "select count(word) from one_row where id > 0",
    ),
}
