"""The result that users hold: it prints as tables, plots itself, and shows both in a notebook."""

import base64
import io
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from simcollectives.errors import SimcollectivesError
from simcollectives.report.files import png_bytes
from simcollectives.report.plots import plot
from simcollectives.report.style import root_figure
from simcollectives.report.tables import html, result_blocks, result_tables, show
from simcollectives.report.text import Block, caption
from simcollectives.scenario import ScenarioResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEXT_WIDTH = 110


class MissingExtraError(SimcollectivesError, ImportError):
    """A library of one of the extras is not installed."""


@dataclass(frozen=True, repr=False)
class Result(ScenarioResult):
    """A scenario that was run: ``rows``, ``checks``, ``warnings``, and ways to look at them."""

    @classmethod
    def of(cls, result: ScenarioResult) -> "Result":
        """Return a result with ways to look at it."""
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)})

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame in SI units; the swept keys are columns, as ``message``.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            remedy = 'install it with: pip install "simcollectives[notebook]"'
            raise MissingExtraError(f"to_frame() needs pandas, which is in the extra `notebook`; {remedy}") from error
        keys = dict.fromkeys(key for row in self.rows for key in row["point"])
        flat = [
            {**{key: row["point"].get(key) for key in keys}, **{key: row[key] for key in row if key != "point"}}
            for row in self.rows
        ]
        return pandas.DataFrame(flat)

    def plot(self, ax: "Axes | None" = None, kind: str = "time") -> "Axes":
        """Draw into given Axes, or into a new figure, and return the Axes; see ``simcollectives.report.plots.plot``.

        Raises:
            InputError: there is no such kind of plot, or the result has nothing to show in it.
        """
        return plot(self, ax, kind)

    def __str__(self) -> str:
        """Return the tables as plain text."""
        text = io.StringIO()
        show(result_tables(self, _TEXT_WIDTH), text, _TEXT_WIDTH)
        for warning in self.warnings:
            text.write(f"warning: {warning}\n")
        return text.getvalue().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the tables and the plot, for a notebook."""
        blocks: list[Block] = [*result_blocks(self), *(caption(f"warning: {warning}") for warning in self.warnings)]
        if not self.rows:
            return html(blocks)
        image = base64.b64encode(png_bytes(root_figure(self.plot()))).decode("ascii")
        alternative = "time of each algorithm; the numbers are in the table"
        return f'{html(blocks)}\n<img alt="{alternative}" src="data:image/png;base64,{image}">'
