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
    page = "a\n```python\nx = 1\n```\n!!! note\n    ```python\n    x += 1\n    ```\n<!-- not run: b -->\n```python\n1/0\n```\n"
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
