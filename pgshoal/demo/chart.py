"""The demonstration's chart, as SVG and as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgshoal.demo.compare import Outcome

COLOURS = {"direct": "#8d99ae", "pooled": "#2a6f97"}


def draw(outcomes: Sequence[Outcome], folder: Path, title: str) -> list[Path]:
    """Draws transactions per second and backends at peak, side by side; returns the files written."""
    import matplotlib as mpl

    mpl.use("Agg")  # no display is needed, nor one tried
    from matplotlib import pyplot

    panels = (
        ("transactions per second", [o.report.tps for o in outcomes]),
        ("PostgreSQL backends at peak", [float(o.backends_at_peak) for o in outcomes]),
    )
    figure, axes = pyplot.subplots(1, len(panels), figsize=(11, 4.2), layout="constrained")
    labels = [f"{o.load.title}\n{o.way}" for o in outcomes]
    colours = [COLOURS.get(o.way, "#444444") for o in outcomes]
    for axis, (heading, values) in zip(axes, panels, strict=True):
        bars = axis.barh(range(len(values)), values, color=colours)
        axis.bar_label(bars, fmt="{:,.0f}", padding=3)
        axis.set_yticks(range(len(values)), labels)
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.set_title(heading, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_yticklabels([])
    figure.suptitle(title, fontsize=12)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "comparison.svg", folder / "comparison.png"]
    for file in files:
        figure.savefig(file, dpi=130)
    pyplot.close(figure)
    return files
