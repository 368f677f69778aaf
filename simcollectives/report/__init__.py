"""Reports: tables for the terminal, figures, files, and the result that users hold in a notebook."""

from simcollectives.report.view import Result

__all__ = ["Result"]
