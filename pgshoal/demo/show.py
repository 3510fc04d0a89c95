"""Runs the demonstration: start, compare, tell, stop."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich import box
from rich.console import Console
from rich.table import Table

from pgshoal.demo import chart, pgbench, programs
from pgshoal.demo.account import unprivileged
from pgshoal.demo.cluster import Cluster
from pgshoal.demo.compare import Outcome, compare, loads
from pgshoal.demo.pooler import Pooler

NEEDS = ("matplotlib", "psycopg")
LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    keep: bool
    system_postgres: bool
    results_dir: Path
    engine: str
    seconds: int
    clients: int


def run_demo(options: Options) -> int:
    """The whole demonstration; 0 when it went well, 1 with a readable reason, 130 when interrupted."""
    console = Console()
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        console.print(f"The demo needs {' and '.join(missing)}: pip install 'pgshoal\\[bench]'", style="red")
        return 1
    try:
        with interruptible():
            stage(options, console)
    except KeyboardInterrupt:
        console.print("\nInterrupted; everything that was started has been stopped.")
        return 130
    except (programs.ProgramsMissing, RuntimeError, OSError) as error:
        console.print("The demo failed:", style="red")
        console.print(str(error), markup=False, highlight=False)
        return 1
    return 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP unwind like Ctrl-C does, so that no server is left behind."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stage(options: Options, console: Console) -> None:
    """Starts both servers, compares, reports, and stays if asked to."""
    account = unprivileged()
    found = programs.system() if options.system_postgres else programs.embedded(account)
    with ExitStack() as stack:
        with console.status(f"starting PostgreSQL {found.major}"):
            cluster = stack.enter_context(Cluster(found, {"max_connections": str(options.clients + 40)}))
            pgbench.fill(cluster)
        with console.status("starting the pooler"):
            pooler = stack.enter_context(pooler_for(cluster, options))
        ways = [
            ("direct", pgbench.Target(cluster.host, cluster.port)),
            ("pooled", pgbench.Target(pooler.host, pooler.port)),
        ]
        with console.status("comparing") as status:
            outcomes = compare(cluster, ways, loads(options.clients, options.seconds), status.update)
        console.print(table(outcomes, f"PostgreSQL {found.major}, {options.clients} clients, {options.seconds} s each"))
        title = f"pgshoal in front of PostgreSQL {found.major}, {options.clients} clients"
        files = chart.draw(outcomes, options.results_dir, title)
        console.print(f"chart: {' and '.join(str(f) for f in files)}", highlight=False)
        tell_how_to_connect(console, cluster, pooler, options.keep)
        if options.keep:
            stay(pooler)


def pooler_for(cluster: Cluster, options: Options) -> Pooler:
    """The pooler with the plainest useful configuration."""
    return Pooler(
        {"*": f"host={cluster.socket_dir} port={cluster.port}"},
        userlist={cluster.superuser: ""},
        admin_users=cluster.superuser,
        pool_mode="transaction",
        default_pool_size=8,
        max_client_conn=1000,
        engine=options.engine,
    )


def table(outcomes: Sequence[Outcome], title: str) -> Table:
    """The figures for the terminal, with the ratio of pooled to direct."""
    caption = "latency, connect: ms; backends: PostgreSQL's at peak; started: by PostgreSQL"
    out = Table(
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    out.add_column("load", no_wrap=True)
    out.add_column("way", no_wrap=True)
    for name in ("queries/s", "ratio", "latency", "connect", "backends", "started"):
        out.add_column(name, justify="right", no_wrap=True)
    direct = {o.load: o.report.tps for o in outcomes if o.way == "direct"}
    for o in outcomes:
        ratio = o.report.tps / direct[o.load] if o.way != "direct" and direct.get(o.load) else None
        out.add_row(
            o.load.title,
            o.way,
            f"{o.report.tps:,.0f}",
            f"{ratio:.2f}" if ratio else "",
            f"{o.report.latency_ms:.2f}",
            f"{o.report.connect_ms:.2f}" if o.report.connect_ms else "",
            str(o.backends_at_peak),
            str(o.backends_started),
            end_section=o.way != "direct",
        )
    return out


def tell_how_to_connect(console: Console, cluster: Cluster, pooler: Pooler, staying: bool) -> None:
    """Prints the lines that reach the pooler and its console."""
    psql = shutil.which("psql") or str(cluster.programs["psql"])
    when = "now, until Ctrl-C" if staying else "while the demo runs (with --keep it stays)"
    console.print(f"connect {when}:", highlight=False)
    for dbname, what in (("postgres", "through the pooler"), ("pgbouncer", "the pooler's console: SHOW POOLS;")):
        line = f"  {psql} 'host={pooler.host} port={pooler.port} user={cluster.superuser} dbname={dbname}'"
        console.print(f"{line}   # {what}", highlight=False, soft_wrap=True)


def stay(pooler: Pooler) -> None:
    """Waits for Ctrl-C, which is the wished end; a pooler that dies is an error."""
    never = threading.Event()
    try:
        while not never.wait(LOOK_EVERY_S):
            if not pooler.running:
                raise RuntimeError(f"the pooler has ended by itself; its log ends:\n{pooler.log_text()[-2000:]}")
    except KeyboardInterrupt:
        return
