"""Residuals of fits: predicted over measured time against the message, one line a sweep."""

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from simcollectives.measured.models import Fitted
from simcollectives.report.plot_curves import set_number_axis
from simcollectives.report.rows import byte_family
from simcollectives.report.style import COLOURS, GREY, decade_ticks, dress, log_limits, plain, set_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    axes.axhline(1, color=GREY, linewidth=0.9)
    axes.set_yscale("log")
    low, high = log_limits([*ratios.tolist(), 0.8, 1.25], pad=0.06)
    axes.set_ylim(low, high)
    set_ticks(axes.yaxis, decade_ticks(low, high), lambda ratio: f"{ratio:.4g}x")
    axes.set_ylabel("predicted / measured")
    sizes = sorted({float(size) for size in columns.message_bytes})
    set_number_axis(axes, "message", sizes, byte_family(sizes))
    axes.set_xlabel("message size")
    axes.set_title(plain(f"{fit.collective}, {fit.algorithm}: {fit.model}"), loc="left", fontsize=10)
    axes.legend(fontsize=7, frameon=False)


def residuals_png(fits: Sequence[Fitted]) -> bytes:
    """Return a picture of the residuals of up to a dozen fits, one below another, as PNG."""
    from matplotlib.figure import Figure

    drawn = fits[:MOST_FITS]
    figure = Figure(figsize=(8, 3 * len(drawn)), layout="constrained")
    for axes, fit in zip(figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True):
        draw_residuals(axes, fit)
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=120)
    return stream.getvalue()
