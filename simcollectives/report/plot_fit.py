"""Residuals of fits: predicted over measured time against the message, one line a sweep."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simcollectives.measured.models import Fitted
from simcollectives.report.plot_curves import set_number_axis
from simcollectives.report.plot_measured import set_ratio_axis
from simcollectives.report.rows import byte_family
from simcollectives.report.style import COLOURS, dress, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FITS = 12


def draw_residuals(axes: "Axes", fit: Fitted) -> None:
    """Draw predicted over measured time by the formula of a fit, at the points it was fitted to; 1 is right."""
    dress(axes)
    columns = fit.columns
    ratios = fit.formula(columns.world_size, columns.nodes, columns.message_bytes) / columns.seconds
    for index, sweep in enumerate(columns.sweeps):
        mine = np.flatnonzero(columns.sweep == index)
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(
            columns.message_bytes[mine], ratios[mine], color=colour, linewidth=1.2, marker="o", markersize=3,
            label=plain(sweep.name),
        )  # fmt: skip
    set_ratio_axis(axes, ratios.tolist())
    sizes = sorted({float(size) for size in columns.message_bytes})
    set_number_axis(axes, "message", sizes, byte_family(sizes))
    axes.set_xlabel("message size")
    axes.set_title(plain(f"{fit.collective}, {fit.algorithm}: {fit.model}"), loc="left", fontsize=10)
    axes.legend(fontsize=7, frameon=False)


def residuals(fits: Sequence[Fitted]) -> "Figure":
    """Return a figure of the residuals of up to a dozen fits, one below another."""
    from matplotlib.figure import Figure

    drawn = fits[:MOST_FITS]
    figure = Figure(figsize=(8, 3 * len(drawn)), dpi=120, layout="constrained")
    for axes, fit in zip(figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True):
        draw_residuals(axes, fit)
    return figure
