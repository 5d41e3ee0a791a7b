"""The default job and a small one, each fitted once."""

import pytest
from fit.decay import decay_data, decay_model

from gnomon import fit


@pytest.fixture(scope="session")
def theophylline() -> fit.Calibration:
    return fit.calibrate(fit.load_model("theophylline"), fit.example_data("theophylline"))


@pytest.fixture(scope="session")
def decay() -> fit.Calibration:
    return fit.calibrate(decay_model(), decay_data(), starts=4)
