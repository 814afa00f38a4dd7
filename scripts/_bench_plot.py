"""The pictures of the benchmark, as SVG, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _bench_run import PURE, TARKIT, Row

COLOURS = {
    TARKIT: "#1f6feb",
    PURE: "#9ec1f7",
    "webdataset": "#d29922",
    "loose files": "#6e7781",
    "loose objects": "#b7bdc4",
}


def plot_ratios(rows: Sequence[Row], path: Path) -> None:
    """Draw the time of tarkit as a multiple of that of the peer in its aim, with and without the accelerator."""
    shown = [
        (row, {who: aim for who, aim in row.aims.items() if {who, aim.peer} <= row.values.keys()})
        for row in rows
        if row.by in ("cpu", "wall")
    ]
    shown = [(row, aims) for row, aims in shown if aims]
    figure, axes = _axes((8, 1 + 0.3 * len(shown)))
    for place, (row, aims) in enumerate(shown):
        figures = row.medians()
        for who, aim in aims.items():
            at, ratio = place + (0.2 if who == PURE else -0.2), figures[who] / figures[aim.peer]
            goal = aim.within or 1 / aim.faster
            axes.barh(at, ratio - 1, 0.36, left=1, color=COLOURS[who], label="fast" if who == TARKIT else "pure")
            axes.text(1.05 * max(ratio, goal, 1), at, f"{ratio:.2g}", fontsize=6, verticalalignment="center")
            axes.plot([goal, goal], [at - 0.2, at + 0.2], color="#cf222e", linewidth=1.5, label="aim")
    names = [f"{row.name}  /  {next(iter(aims.values())).peer}" for row, aims in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=7)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="#6e7781", linewidth=0.8)
    axes.set_xlabel("time of tarkit / time of the other (CPU or wall, as in the table); less is better", fontsize=8)
    _save(figure, axes, path)


def plot_rates(rows: Sequence[Row], samples: int, path: Path) -> None:
    """Draw the samples a second of each candidate: a group of bars for each row."""
    figure, axes = _axes((8, 3.6))
    for place, row in enumerate(rows):
        for bar, (who, seconds) in enumerate(row.medians().items()):
            rate = samples / seconds
            drawn = axes.bar(place + 0.28 * (bar - 1), rate, 0.26, color=COLOURS[who], label=who)
            axes.bar_label(drawn, [f"{rate:,.0f}"], fontsize=6, rotation=90, padding=2)
    axes.set_xticks(range(len(rows)), [row.name.replace(", ", "\n") for row in rows], fontsize=7)
    axes.set_ylabel("samples a second")
    axes.set_yscale("log")
    _save(figure, axes, path)


def _axes(size: tuple[float, float]) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tarkit"
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, ncols=4, frameon=False, loc="outside upper center")
    figure.savefig(path, metadata={"Date": None})
