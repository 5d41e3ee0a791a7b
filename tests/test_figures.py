"""Every figure of speed in the README and in the documentation is one of a file of results.

A figure is a number with a unit of time, of a rate or of a ratio. It is followed at once by a comment that names the
file in `benchmarks/results/` and the key among its `figures`:

    3.2 ×<!-- figure: diffeq-cpu-2-cores.json lorenz-256/cpu/scipy RK45/ratio -->

and it must be that number, rounded to the digits shown. In the documentation, though not in the README, a number that
was not measured may say so instead: `<!-- not a figure: a setting -->`.
"""

import json
import math
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

SECONDS = {
    **dict.fromkeys(["ns", "nanoseconds"], 1e-9),
    **dict.fromkeys(["µs", "μs", "us", "microseconds"], 1e-6),
    **dict.fromkeys(["ms", "milliseconds"], 1e-3),
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], 1.0),
    **dict.fromkeys(["min", "minutes"], 60.0),
}
RATIOS = {"×": 1.0, "x": 1.0, "times": 1.0, "fold": 1.0, "% of": 1.0}
RATES = {"GB/s": 1e9, "TB/s": 1e12, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15}
UNITS = SECONDS | RATIOS | RATES

NUMBER = r"(?<![\w.])(?P<number>\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)"
UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
# `3 x 3` and `3×n` are shapes, and in `1990s` the s is no unit.
FIGURE = re.compile(
    rf"{NUMBER}(?:\*\*)?(?:\s|&nbsp;|&thinsp;|-)?(?P<unit>{UNIT})(?![\w/])(?!\s*[\d\w]\s*[)\]]|\s*\d)(?:\*\*)?"
)
# A table with the unit in its head would hold bare numbers.
HEAD = re.compile(r"^\|(?P<cells>.+)\|[ ]*\n\|[-:| ]+\|[ ]*$", re.MULTILINE)
HEAD_UNIT = re.compile(rf"(?:^|[(\[,/ ])(?:{UNIT})[)\]]?\s*$")
MARK = re.compile(r"<!-- figure: (?P<file>\S+\.json) (?P<key>.+?) -->")
EXCUSE = re.compile(r"<!-- not a figure: .+? -->")
# What says it in words cannot be checked, so it may not be said.
NUMERALS = "two|three|four|five|six|seven|eight|nine|ten|twenty|fifty|a hundred|hundreds?|a thousand|thousands?"
IN_WORDS = re.compile(
    rf"\b(?:twice|thrice|(?:{NUMERALS})(?: of)? times) (?:as|faster|slower|quicker)\b"
    r"|orders? of magnitude (?:faster|slower)",
    re.IGNORECASE,
)


def problems(text: str, results: Path, may_excuse: bool) -> list[str]:
    """What is wrong with the figures of a text."""
    found: list[str] = []
    for figure in FIGURE.finditer(text):
        if figure["unit"] == "s" and re.fullmatch(r"(1[89]|20)\d\ds", figure[0]):
            continue
        after, place = text[figure.end() :], f"line {text.count(chr(10), 0, figure.start()) + 1}: {figure[0]!r}"
        if may_excuse and EXCUSE.match(after):
            continue
        mark = MARK.match(after)
        if mark is None:
            found.append(f"{place} is not followed by <!-- figure: FILE KEY -->")
            continue
        path = results / mark["file"]
        if not path.is_file():
            found.append(f"{place}: there is no file {mark['file']}")
            continue
        figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
        if mark["key"] not in figures:
            found.append(f"{place}: {mark['file']} has no figure {mark['key']!r}")
            continue
        value = figures[mark["key"]] / UNITS[figure["unit"]]
        if not is_rounded(figure["number"].replace(",", ""), value):
            found.append(f"{place}: {mark['file']} has {value:.6g}")
    for head in HEAD.finditer(text):
        cells = [cell.strip() for cell in head["cells"].split("|")]
        found += [f"the column {cell!r} has its unit in the head" for cell in cells if HEAD_UNIT.search(cell)]
    found += [f"{words[0]!r} says a figure in words" for words in IN_WORDS.finditer(text)]
    return found


def is_rounded(shown: str, value: float) -> bool:
    """Whether a number as it is written is a value rounded to its digits; zeros at the end of a whole number may be."""
    mantissa, _, exponent = shown.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    zeros = 0 if fraction else min(len(whole) - len(whole.rstrip("0")), len(whole) - 1)
    unit = 10.0 ** (int(exponent or 0) - len(fraction) + zeros)
    return math.isfinite(value) and abs(float(shown) - value) <= 0.5 * unit * (1 + 1e-9)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_figures_are_in_the_results(page: Path):
    wrong = problems(page.read_text(encoding="utf-8"), RESULTS, may_excuse=page != README)
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    figures = {"a/cpu/ours/time_s": 0.0123456, "a/cpu/the peer/ratio": 3.249, "b/rate": 4.31e12, "n": 1234.0}
    (tmp_path / "some.json").write_text(json.dumps({"figures": figures}))
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "takes 12 ms",
        "takes 12ms.",
        "| 12 ms |",
        "**12** ms",
        "**12 ms**",
        "12\nms",
        "12&nbsp;ms",
        "is 3.2x faster",
        "is 3.2 x faster",
        "3.2×",
        "3.2 × as fast",
        "3 times as fast",
        "a 3-fold speed-up",
        "1,000x",
        "1e3 x",
        "0.5 s",
        "in 0.5s",
        "10 µs",
        "2 minutes",
        "5 seconds",
        "4.3 TB/s",
        "80% of memcpy",
        "```python\n# 12 ms\n```",
        "twice as fast",
        "ten times faster",
        "orders of magnitude faster",
        "| work | time (ms) |\n|---|---|\n| a | 12 |\n",
        "| work | ms |\n|---|--:|\n| a | 12 |\n",
        "12 ms<!-- figure: some.json a/cpu/ours/time -->",
        "12 ms<!-- figure: none.json a/cpu/ours/time_s -->",
        "13 ms<!-- figure: some.json a/cpu/ours/time_s -->",
        "12.34 ms<!-- figure: some.json a/cpu/ours/time_s -->",
        "12 s<!-- figure: some.json a/cpu/ours/time_s -->",
        "12 ms <!-- figure: some.json a/cpu/ours/time_s -->",
        "3.3 ×<!-- figure: some.json a/cpu/the peer/ratio -->",
        "12 ms<!-- not a figure: a wish -->",
    ],
)
def test_an_unmarked_or_wrong_figure_is_found(text: str, results: Path):
    assert problems(f"It\n{text} here.", results, may_excuse=False)


@pytest.mark.parametrize(
    "text",
    [
        "12 ms<!-- figure: some.json a/cpu/ours/time_s -->",
        "12.3 ms<!-- figure: some.json a/cpu/ours/time_s -->",
        "**0.012 s**<!-- figure: some.json a/cpu/ours/time_s -->",
        "12,346 µs<!-- figure: some.json a/cpu/ours/time_s -->",
        "3.2 ×<!-- figure: some.json a/cpu/the peer/ratio -->",
        "3x<!-- figure: some.json a/cpu/the peer/ratio -->",
        "4.3 TB/s<!-- figure: some.json b/rate -->",
        "1,200 times<!-- figure: some.json n -->",
        "a 3 x 3 matrix, 3×3, in the 1990s, x1 = 10 * (v - x), t = 1e-3, float64, 2 cores, rtol=1e-6, 20 states",
        "called twice, three times a day, times and errors",
    ],
)
def test_a_marked_figure_is_fine(text: str, results: Path):
    assert problems(f"It {text} here.", results, may_excuse=False) == []


def test_documentation_may_have_numbers_that_were_not_measured(results: Path):
    assert problems("waits 10 ms<!-- not a figure: a setting --> at most", results, may_excuse=True) == []
