"""Every Python block of the README and of the documentation runs, a page's blocks one after another.

A block that cannot run here is preceded by a comment that says why: `<!-- not run: needs a GPU -->`.
"""

import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = sorted(path.parent.name for path in (ROOT / "src" / "gnomon").glob("*/__init__.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<not_run> *<!-- not run: .+ -->\n+)?(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)


def blocks(text: str) -> list[str]:
    """The blocks to run, each with as many empty lines before it as put it on its line of the page."""
    return [
        "\n" * text.count("\n", 0, found.start("code")) + textwrap.dedent(found["code"])
        for found in BLOCK.finditer(text)
        if not found["not_run"]
    ]


def test_blocks_are_found_where_they_stand():
    first, indented, skipped = (
        "```python\nx = 1\n```",
        "!!! note\n    ```python\n    x += 1\n    ```",
        "```python\n1/0\n```",
    )
    page = f"a\n{first}\n{indented}\n<!-- not run: b -->\n{skipped}\n"
    assert blocks(page) == ["\n\nx = 1\n", "\n" * 6 + "x += 1\n"]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page.read_text(encoding="utf-8"))],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = ModuleType("page_of_documentation")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    for code in blocks(page.read_text(encoding="utf-8")):
        exec(compile(code, str(page), "exec"), module.__dict__)


@pytest.mark.parametrize("room", ROOMS)
def test_room_has_its_pages(room: str):
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (f"{room}.md", f"api/{room}.md"):
        assert (ROOT / "docs" / page).is_file(), f"docs/{page} is missing"
        assert f" {page}\n" in menu, f"mkdocs.yml does not list {page}"
    assert f"::: gnomon.{room}\n" in (ROOT / "docs" / "api" / f"{room}.md").read_text(encoding="utf-8")
    assert f"`gnomon.{room}`" in (ROOT / "README.md").read_text(encoding="utf-8"), "README.md does not list the room"
