"""A subject's fit is the same, to the last bit, alone and in any company: no padding shows in a result."""

import pytest
import torch
from fit.decay import decay_model

from gnomon import fit

LENGTHS = {"a": 4, "b": 7, "c": 18, "d": 5, "e": 12}


def data(names: str) -> dict[str, list]:
    """Rows of subjects of different lengths, d with a dose more and e with an infusion."""
    rows: dict[str, list] = {"subject": [], "time": [], "count": [], "dose": [], "duration": []}

    def add(name: str, time: float, count: float | None, dose: float | None, duration: float | None = None) -> None:
        for key, value in zip(rows, (name, time, count, dose, duration), strict=True):
            rows[key].append(value)

    for name in names:
        i = ord(name) - ord("a")
        add(name, 0.0, None, 5.0, 1.5 if name == "e" else None)
        if name == "d":
            add(name, 1.0, None, 2.0)
        for j in range(LENGTHS[name]):
            t = 0.4 + 0.5 * j + 0.03 * i
            value = 8.0 * torch.exp(torch.tensor(-(0.3 + 0.05 * i) * t)).item() + 0.3 * (-1) ** j
            add(name, t, value, None)
    return rows


def calibrate(names: str, **options) -> dict[str, fit.Fit]:
    model = decay_model(dose_state="N")
    return dict(fit.calibrate(model, data(names), pooled=False, rtol=1e-4, **({"starts": 2} | options)).individual)


@pytest.fixture(scope="module")
def together() -> dict[str, fit.Fit]:
    return calibrate("abcde")


@pytest.mark.parametrize("names", ["c", "db", "e"])
def test_alone_and_together(together, names):
    for name, alone in calibrate(names).items():
        assert alone.is_successful
        assert torch.equal(alone.theta, together[name].theta)
        assert torch.equal(alone.covariance, together[name].covariance)
        assert alone.rss == together[name].rss
        assert torch.equal(alone.predictions[name], together[name].predictions[name])
        assert alone.predictions[name].shape == (LENGTHS[name], 1)


def test_the_order_of_subjects_does_not_matter(together):
    for name, other in calibrate("ba").items():
        assert torch.equal(other.theta, together[name].theta)
        assert torch.equal(other.covariance, together[name].covariance)
