"""The demonstration: PostgreSQL, the pooler in front of it and a short comparison, on any machine in a minute."""

from __future__ import annotations

from pathlib import Path


def main(
    keep: bool = False,
    system_postgres: bool = False,
    results_dir: Path = Path("demo-results"),
    *,
    engine: str = "auto",
    seconds: int = 5,
    clients: int = 20,
) -> int:
    """Runs the demonstration and returns the exit status; Ctrl-C at any time stops everything it started."""
    from pgshoal.demo.show import Options, run_demo  # late, so that importing a part of this package stays cheap

    return run_demo(Options(keep, system_postgres, results_dir, engine, seconds, clients))
