"""Hooks of the documentation site (`mkdocs.yml`): pages and links that stand outside of docs/.

ARCHITECTURE.md and CHANGELOG.md stay at the root, where GitHub's readers look for them, and become pages of the site
as well. A link from a page to any other file of the repository leads to that file on GitHub.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = "docs"

ROOT_PAGES = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}
"""Files at the root that are pages of the site, and their names there."""

_CODE_OR_LINK = re.compile(
    r"```.*?^```|`[^`\n]+`|\]\((?![a-z]+:|#|/)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)", re.DOTALL | re.MULTILINE
)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return site_links(markdown, page.file.src_uri, f"{config.repo_url}/blob/main")


def site_links(markdown: str, page: str, repository: str) -> str:
    """The page's text with each relative link made for the site; `page` is its path below docs/.

    `repository` is the address under which the files of the repository can be read.
    """
    source = {site: root for root, site in ROOT_PAGES.items()}.get(page, f"{DOCS}/{page}")

    def rewrite(found: re.Match[str]) -> str:
        if not found["path"]:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["path"]))
        anchor = found["anchor"] or ""
        if path in ROOT_PAGES:
            target = ROOT_PAGES[path]
        elif path.startswith(f"{DOCS}/"):
            target = path.removeprefix(f"{DOCS}/")
        else:
            return f"]({repository}/{path}{anchor})"
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{anchor})"

    return _CODE_OR_LINK.sub(rewrite, markdown)
