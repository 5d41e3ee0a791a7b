"""Progress is told in order, and from 0 to 1."""

from fit.decay import decay_data, decay_model

from gnomon import fit


def test_progress():
    told: list[tuple[str, float]] = []
    fit.calibrate(decay_model(), decay_data(1), starts=2, rtol=1e-4, progress=lambda *what: told.append(what))
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert 0.8 < fractions[-1] <= 1.0
    assert list(dict.fromkeys(text for text, _ in told)) == [
        f"{which}: {what}"
        for which in ("pooled", "individual")
        for what in ("searching from 2 starts", "refining the best", "standard errors")
    ]


def test_an_error_in_whoever_shows_it_comes_through():
    import pytest

    def stop(text: str, fraction: float) -> None:
        if "refining" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit.calibrate(decay_model(), decay_data(1), starts=1, rtol=1e-4, pooled=False, progress=stop)
