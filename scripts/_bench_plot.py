"""The pictures of the benchmark, as SVG, by matplotlib: narrow, so that they can be read on a telephone as they are."""

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
WIDTH = 4.4  # inches
LINEAR = 30  # rates that differ by less have an axis from 0 on, not of powers of ten


def plot_ratios(rows: Sequence[Row], path: Path) -> None:
    """Draw the time of tarkit as a multiple of that of the peer in its aim, with and without the accelerator."""
    shown = [
        (row, {who: aim for who, aim in row.aims.items() if {who, aim.peer} <= row.values.keys()})
        for row in rows
        if row.by in ("cpu", "wall")
    ]
    shown = [(row, aims) for row, aims in shown if aims]
    figure, axes = _axes(len(shown), 0.46)
    for place, (row, aims) in enumerate(shown):
        _title(axes, place, f"{row.name}  /  {next(iter(aims.values())).peer}")
        figures = row.medians()
        for who, aim in aims.items():
            at, ratio = place + (0.28 if who == PURE else 0), figures[who] / figures[aim.peer]
            goal = aim.within or 1 / aim.faster
            axes.barh(at, ratio - 1, 0.26, left=1, color=COLOURS[who], label="fast" if who == TARKIT else "pure")
            axes.text(1.05 * max(ratio, goal, 1), at, f"{ratio:.2g}", fontsize=7, verticalalignment="center")
            axes.plot([goal, goal], [at - 0.15, at + 0.15], color="#cf222e", linewidth=1.5, label="aim")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="#6e7781", linewidth=0.8)
    axes.set_xlabel("time of tarkit / time of the other\n(CPU or wall, as in the table); less is better", fontsize=8)
    _save(figure, axes, path)


def plot_rates(rows: Sequence[Row], samples: int, path: Path) -> None:
    """Draw the samples a second of each candidate: a group of bars for each row."""
    figure, axes = _axes(len(rows), 0.62)
    rates = [samples / seconds for row in rows for seconds in row.medians().values()]
    if max(rates) < LINEAR * min(rates):
        axes.set_xscale("linear")
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    for place, row in enumerate(rows):
        _title(axes, place, row.name)
        for bar, (who, seconds) in enumerate(row.medians().items()):
            rate = samples / seconds
            drawn = axes.barh(place + 0.2 * bar, rate, 0.18, color=COLOURS[who], label=who)
            axes.bar_label(drawn, [f"{rate:,.0f}"], fontsize=7, padding=2)
    axes.set_xlabel("samples a second; more is better", fontsize=8)
    axes.margins(x=0.12)
    _save(figure, axes, path)


def _axes(rows: int, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tarkit"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(WIDTH, 1 + height * rows), layout="constrained")
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter("")  # labels of a short axis would overlap
    axes.set_yticks([])
    axes.set_ylim(rows - 0.4, -0.6)
    axes.tick_params(labelsize=8)
    return figure, axes


def _title(axes: Any, place: int, name: str) -> None:
    """Write the name of a row above its bars, from the left edge of the picture on."""
    axes.text(0, place - 0.22, name, fontsize=8, transform=axes.get_yaxis_transform(), verticalalignment="bottom")


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, ncols=3, frameon=False, loc="outside upper center", fontsize=8)
    figure.savefig(path, metadata={"Date": None})
