"""Hooks of MkDocs: the gallery becomes part of the site, and pages link to it there.

Pages of docs/ are also read in the repository, where the gallery lies outside of docs/."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
GALLERY = "reports/gallery"


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures of the gallery to the site, in the folder `gallery`."""
    for path in sorted((ROOT / GALLERY).iterdir()):
        if path.suffix in (".svg", ".png"):
            picture = File.generated(config, f"gallery/{path.name}", abs_src_path=str(path))
            files.append(picture)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to the gallery of the repository point to the gallery of the site."""
    depth = page.file.src_uri.count("/")
    return re.sub(rf"\]\((\.\./)+{GALLERY}/", "](" + "../" * depth + "gallery/", markdown)
