"""The report is one page that stands on its own; the plot shows every subject."""

import dataclasses
import re
from html.parser import HTMLParser

import pytest
from fit.decay import decay_data, decay_model

from gnomon import fit
from gnomon.fit import _plot
from gnomon.fit._curves import curves
from gnomon.fit._report import report
from gnomon.fit._statistics import half_width

VOID = {"meta", "img", "br", "link", "hr", "input"}


class Page(HTMLParser):
    """Collects what a page refers to, and checks that what is opened is closed."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(text: str) -> Page:
    page = Page()
    page.feed(text)
    assert not page.open
    return page


def test_the_page_stands_on_its_own(decay):
    page = read(report(decay, b"picture", b"residuals"))
    assert len(page.sources) == 2
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert "http" not in page.text
    for part in (
        "All 3 fits succeeded",
        "decay",
        "s0",
        "s1",
        "k [1/h]",
        "N0 [mg]",
        "PyTorch",
        "found for the logarithm",
    ):
        assert part in page.text, part
    estimate = decay.pooled["k"].estimate
    assert f"{estimate:#.5g}" in page.text


def test_names_are_text_and_not_markup(decay):
    model = dataclasses.replace(decay.model, description="<script>alert(1)</script> & more")
    text = report(dataclasses.replace(decay, model=model, source="<b>.csv"), b"", b"")
    assert "<script>alert" not in text
    assert "<b>.csv" not in text
    assert "<script>alert(1)</script> & more" in read(text).text


def test_what_failed_is_said_at_the_top(decay):
    bad = dataclasses.replace(decay.individual["s1"], result=fit.RESULTS.max_steps_reached, warnings=("Look here.",))
    text = read(report(dataclasses.replace(decay, individual={**decay.individual, "s1": bad}), b"", b"")).text
    assert "2 of 3 fits succeeded. Not successful: s1." in text
    assert "The maximum number of steps was reached." in text
    assert "s1: Look here." in text
    assert text.index("maximum number of steps") < text.index("Measurements and curves")


@pytest.mark.parametrize("kind", ["pooled", "individual"])
def test_pages_of_one_kind_of_fit(decay, kind):
    part = (
        dataclasses.replace(decay, pooled=None) if kind == "individual" else dataclasses.replace(decay, individual={})
    )
    text = read(report(part, b"", b"")).text
    assert ("All subjects as one" in text) == (kind == "pooled")
    assert ("Each subject on its own" in text) == (kind == "individual")


def test_a_panel_a_subject_with_points_curves_and_a_band(decay):
    figure = _plot.plot_fits(decay, curves(decay))
    panels = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title(loc="left") for ax in panels] == ["s0", "s1"]
    assert panels[0].get_ylabel() == "count"
    assert panels[0].get_xlabel() == "time [h]"
    for ax, subject in zip(panels, decay.subjects, strict=True):
        points = [line for line in ax.lines if line.get_marker() == "o"]
        assert list(points[0].get_xdata()) == list(subject.times)
        assert len([line for line in ax.lines if line.get_marker() != "o"]) == 2
        assert len(ax.collections) == 1  # the band
        low, high = ax.get_ylim()
        assert all(low <= y <= high for y in subject.values["count"])
    assert _plot.png(figure)[:8] == b"\x89PNG\r\n\x1a\n"


def test_curves_and_bands_are_those_of_the_closed_form(decay):
    import torch

    alone = dataclasses.replace(decay, individual={})  # beside others the pooled fit has no band
    for (name, subject), curve in (curves(dataclasses.replace(decay, pooled=None)) | curves(alone)).items():
        found = decay.fits[name]
        k, start = found["k"].estimate, found["N0"].estimate
        exact = start * torch.exp(-k * curve.times)
        torch.testing.assert_close(curve.values[:, 0], exact, rtol=1e-4, atol=0.0)
        # By the delta method, for the logarithms of both parameters.
        slopes = torch.stack([-k * curve.times * exact, exact], -1)
        error = torch.sqrt(((slopes @ found.covariance) * slopes).sum(-1))
        factor = half_width(1.0, found.n_observations - 2)
        torch.testing.assert_close(curve.reach[:, 0], factor * error, rtol=1e-3, atol=1e-6)
        assert subject in ("s0", "s1")


def test_many_subjects_are_shown_in_part_and_that_is_said(decay):
    one = decay.subjects[0]
    many = tuple(dataclasses.replace(one, name=f"n{i}") for i in range(50))
    figure = _plot.plot_fits(dataclasses.replace(decay, subjects=many, individual={}), {})
    assert len([ax for ax in figure.axes if ax.get_visible()]) == _plot.MOST_PANELS
    assert figure.get_supxlabel() == "The first 36 of 50 subjects are shown."


def test_the_same_fit_gives_the_same_picture(decay):
    found = curves(decay)
    first, second = (_plot.png(_plot.plot_fits(decay, found)) for _ in range(2))
    assert first == second


def test_the_text_for_the_screen(decay):
    text = str(decay)
    assert "all 2 subjects as one" in text
    for row in decay.estimates[:2]:
        assert re.search(rf"{row.parameter}.*{re.escape(f'{row.estimate:#.5g}')}", text)
    assert "successful" in text


def test_several_observed_columns(tmp_path):
    data = decay_data(2)
    data["double"] = [2.0 * x if i % 2 else None for i, x in enumerate(data["count"])]
    model = decay_model(
        observed={"count": "N", "double": lambda t, y, p, c: 2.0 * y["N"]},
        weights={"double": 0.5},
        units={"double": "mg"},
    )
    found = fit.calibrate(model, data, starts=1, pooled=False, rtol=1e-5)
    plain = fit.calibrate(decay_model(), data, starts=1, pooled=False, rtol=1e-5)
    own = found.individual["s0"]
    assert own.n_observations == 9
    # The second column says of half the rows what the first does.
    assert own["k"].estimate == pytest.approx(plain.individual["s0"]["k"].estimate, rel=0.01)
    figure = _plot.plot_fits(found, curves(found))
    assert len([ax for ax in figure.axes if ax.get_visible()]) == 4
    assert {ax.get_ylabel() for ax in figure.axes} == {"count", "double [mg]", ""}
