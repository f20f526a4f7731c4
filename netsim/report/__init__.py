"""One self-contained HTML file of a folder of results, which opens offline."""

from netsim.report.build import Extra, write_report

__all__ = ["Extra", "write_report"]
