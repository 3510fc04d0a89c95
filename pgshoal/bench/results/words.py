"""Figures in words: as many digits as tell something, units by the names of figures."""

from __future__ import annotations

from collections.abc import Mapping

from pgshoal.bench.model import Value

#: What figures are called where their own name is not good enough, and their unit.
CALLED = {
    "tps": ("transactions", "/s"),
    "units_per_s": ("units", "/s"),
    "throughput_mib_s": ("throughput", "MiB/s"),
    "api_rate": ("API requests", "/s"),
    "cpu_us_per_tx": ("pooler CPU", "µs/tx"),
    "cpu_us_per_mib": ("pooler CPU", "µs/MiB"),
    "bytes_per_client": ("memory per client", "bytes"),
    "pooler_cores": ("pooler", "cores"),
    "postgres_cores": ("PostgreSQL", "cores"),
    "load_cores": ("load", "cores"),
    "latency_mean_ms": ("mean", "ms"),
    "latency_stddev_ms": ("stddev", "ms"),
    "p999_ms": ("p99.9", "ms"),
    "postgres_rss_mb": ("PostgreSQL RSS", "MB"),
    "pooler_rss_mb": ("pooler RSS", "MB"),
    "backends_max": ("backends at most", ""),
    "backends_mean": ("backends, mean", ""),
}
ENDINGS = {"_ms": "ms", "_mb": "MB"}


def number(value: float | None) -> str:
    """A figure with three or four digits that count; a dash where there is none."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.3g}"


def percent(share: float | None) -> str:
    """A share as a percentage; a dash where there is none."""
    return "-" if share is None else f"{share * 100:.1f} %"


def title(figure: str, unit: str = "") -> str:
    """The heading of a figure: what it is called, and its unit."""
    ending = next((ending for ending in ENDINGS if figure.endswith(ending)), "")
    called, known = CALLED.get(figure, (figure.removesuffix(ending).replace("_", " "), ENDINGS.get(ending, "")))
    unit = known if known.startswith("/") else unit or known
    return f"{called}{unit}" if unit.startswith("/") else f"{called}, {unit}" if unit else called


def ratio(value: float | None) -> str:
    """A ratio with two decimals, so that those of a column stand alike; a dash where there is none."""
    return number(value) if value is None or value >= 100 else f"{value:.2f}"


def listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def of_variant(variant: Mapping[str, Value]) -> str:
    """A variant as people say it: `256 clients`, `TLS both`, `script one`."""
    return ", ".join(word(name, value) for name, value in variant.items())


def word(name: str, value: Value) -> str:
    """One part of a variant; numbers come before what they count."""
    if name == "tls":
        return f"TLS {value}"
    if isinstance(value, str):
        return f"{name} {value}"
    return f"{value:,} {name[:-1] if value == 1 and name.endswith('s') else name}".replace("_", " ")
