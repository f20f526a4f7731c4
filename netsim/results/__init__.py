"""Results: rows with fixed columns, and the folder that keeps them through any interruption."""

from netsim.results.folder import Folder, open_folder
from netsim.results.row import AXIS, COLUMNS, Row, csv_text

__all__ = [
    "AXIS",
    "COLUMNS",
    "Folder",
    "Row",
    "csv_text",
    "open_folder",
]
