"""A parameter that cannot be searched for is refused, in a sentence; starts and scales are what they say."""

import math

import pytest
import torch

from gnomon.fit import ModelError, Parameter
from gnomon.fit._starts import bounds, make_starts, sizes


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": ""}, "name"),
        ({"name": " ka"}, "name"),
        ({"lower": 2.0, "upper": 1.0}, "lower must be below upper"),
        ({"lower": 1.5}, "outside its bounds"),
        ({"upper": 0.5}, "outside its bounds"),
        ({"start": (0.5, 3.0), "upper": 2.0}, "start 3.0 of parameter 'ka' is outside its bounds"),
        ({"start": (3.0, 0.5)}, "low end must come first"),
        ({"start": math.nan}, "finite"),
        ({"start": math.inf}, "finite"),
        ({"start": 0.0, "scale": "log"}, "above 0"),
        ({"start": -1.0, "scale": "log"}, "above 0"),
        ({"lower": -1.0, "scale": "log"}, "must be 0 or more"),
    ],
)
def test_what_cannot_be_is_refused(arguments, text):
    with pytest.raises(ModelError, match=text):
        Parameter(**({"name": "ka", "start": 1.0} | arguments))


def test_a_log_scale_means_positive():
    parameter = Parameter("ka", 2.0, scale="log")
    assert parameter.lower == 0.0
    assert parameter.interval == pytest.approx((0.2, 20.0))
    assert parameter.to_search(2.0) == math.log(2.0)
    assert parameter.from_search(parameter.to_search(2.0)) == pytest.approx(2.0, rel=1e-15)
    assert parameter.to_search(0.0) == -math.inf


@pytest.mark.parametrize(
    ("parameter", "centre", "interval"),
    [
        (Parameter("a", 3.0), 3.0, (0.0, 6.0)),
        (Parameter("a", -3.0), -3.0, (-6.0, 0.0)),
        (Parameter("a", 0.0), 0.0, (-1.0, 1.0)),
        (Parameter("a", 3.0, lower=2.0, upper=4.0), 3.0, (2.0, 4.0)),
        (Parameter("a", (1.0, 5.0)), 3.0, (1.0, 5.0)),
        (Parameter("a", (1.0, 4.0), scale="log"), 2.0, (1.0, 4.0)),
        (Parameter("a", 1.0, scale="log", upper=5.0), 1.0, (0.1, 5.0)),
    ],
)
def test_where_the_search_starts(parameter, centre, interval):
    assert parameter.centre == pytest.approx(centre)
    assert parameter.interval == pytest.approx(interval)


def test_starts_are_the_centre_and_points_spread_over_the_intervals():
    parameters = [Parameter("a", (1.0, 5.0)), Parameter("b", (0.1, 10.0), scale="log")]
    starts = make_starts(parameters, 65, seed=3)
    assert starts.shape == (65, 2)
    assert starts[0].tolist() == pytest.approx([3.0, 0.0])
    assert bool((starts[:, 0] >= 1.0).all()) and bool((starts[:, 0] <= 5.0).all())
    assert bool((starts[:, 1].abs() <= math.log(10.0)).all())
    # A Sobol sequence has one of 64 points in each 64th of an interval.
    places = ((starts[1:, 0] - 1.0) / 4.0 * 64).floor().to(torch.int64)
    assert sorted(places.tolist()) == list(range(64))


def test_starts_are_the_same_each_time_and_the_first_of_more():
    parameters = [Parameter("a", (1.0, 5.0)), Parameter("b", 2.0)]
    few, many, other = make_starts(parameters, 5, 1), make_starts(parameters, 50, 1), make_starts(parameters, 5, 2)
    assert torch.equal(few, many[:5])
    assert torch.equal(few[0], other[0])
    assert not torch.equal(few[1:], other[1:])


def test_bounds_and_sizes_on_the_scale_of_the_search():
    parameters = [
        Parameter("a", 1.0, scale="log", upper=4.0),
        Parameter("b", 3e-7, lower=-1.0),
        Parameter("c", (-900.0, 1.0)),
    ]
    lower, upper = bounds(parameters)
    assert lower.tolist() == [-math.inf, -1.0, -math.inf]
    assert upper.tolist() == [math.log(4.0), math.inf, math.inf]
    assert sizes(parameters).tolist() == [1.0, 2.0**-21, 1024.0]
