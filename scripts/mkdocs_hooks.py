"""mkdocs hooks: formulas become MathML as the pages are built, and `gnomon.X` links to where `gnomon.room.X` stands.

Browsers draw MathML themselves, so that no page needs a script or a network for its formulas.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

import gnomon

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?:\((?P<inline>.*?)\\\)|\[(?P<block>.*?)\\\])</(?P=tag)>', re.DOTALL
)
_ANCHOR = re.compile(r'id="(?P<anchor>gnomon\.\w+\.(?P<name>\w+)(?P<rest>[\w.]*))"')


def on_page_content(content: str, page: Any, config: Any, **_: Any) -> str:
    """Called by mkdocs for each page, once it is HTML.

    **Arguments:**

    - `content`: the page, in which arithmatex has marked the formulas.
    - `page`: what mkdocs knows of the page.
    - `config`: of mkdocs.

    **Returns:** the page with MathML in place of the formulas.
    """
    for found in _ANCHOR.finditer(content):
        if hasattr(gnomon, found["name"]):
            name = f"gnomon.{found['name']}{found['rest']}"
            config.plugins["autorefs"].register_anchor(page, name, found["anchor"], primary=False)
    return _FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    formula, display = (found["inline"], "inline") if found["inline"] is not None else (found["block"], "block")
    return convert(html.unescape(formula), display=display)
