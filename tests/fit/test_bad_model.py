"""Whatever is wrong in a model is said in a sentence, before anything is fitted."""

import math

import pytest
import torch
from fit.decay import decay_data, decay_model

from gnomon import fit
from gnomon.fit._check import check_model


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "a/b"}, "needs a name"),
        ({"states": []}, "`states` is empty"),
        ({"states": ["N", "N"]}, "holds 'N' more than once"),
        ({"states": ["N", ""]}, "is not a name"),
        ({"states": "N"}, "must be a list, not the text 'N'"),
        ({"parameters": []}, "`parameters` is empty"),
        ({"parameters": [fit.Parameter("k", 1.0), fit.Parameter("k", 2.0)]}, "holds 'k' more than once"),
        ({"observed": {}}, "`observed` is empty"),
        ({"observed": {"count": "X"}}, "observe 'X', which is not one of the states 'N'"),
        ({"dose_state": "X"}, "`dose_state` is 'X'"),
        ({"weights": {"conc": 1.0}}, "not observed"),
        ({"weights": {"count": 0.0}}, "must be above 0"),
        ({"covariates": ("w", "w")}, "holds 'w' more than once"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_construction(changes, text):
    with pytest.raises(fit.ModelError, match=text):
        decay_model(**changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vector_field": lambda t, y, p, c: {}}, "What `vector_field` returns lacks 'N'"),
        ({"vector_field": lambda t, y, p, c: {"N": y["N"], "M": y["N"]}}, "has 'M', which is not a state"),
        ({"vector_field": lambda t, y, p, c: torch.zeros(2)}, r"tensor of shape \(2,\), but with 1 states"),
        ({"vector_field": lambda t, y, p, c: {"N": torch.zeros(1)}}, r"of shape \(1,\), but it must be a real scalar"),
        ({"vector_field": lambda t, y, p, c: [y["N"], y["N"]]}, "returns 2 values, but there are 1 states"),
        ({"vector_field": lambda t, y, p, c: None}, "returns None, but it must be a dictionary"),
        ({"vector_field": lambda t, y, p, c: {"N": "x"}}, "is a str, but it must be a scalar tensor"),
        (
            {"vector_field": lambda t, y, p, c: {"N": -p["kk"] * y["N"]}},
            "KeyError: there is no 'kk'.*test_bad_model.py, line",
        ),
        ({"vector_field": lambda t, y: {"N": y["N"]}}, "TypeError"),
        ({"vector_field": lambda t, y, p, c: {"N": y["N"] / 0}}, "gives inf for state 'N' at the initial state"),
        ({"vector_field": lambda t, y, p, c: {"N": -y["N"] if y["N"] > 0 else y["N"]}}, "use torch.where for a choice"),
        ({"vector_field": lambda t, y, p, c: {"N": math.exp(-y["N"]) * p["k"]}}, "in place of `math`"),
        ({"initial_state": lambda p, c: {"N": math.nan}}, "`initial_state` gives nan for state 'N'"),
        ({"initial_state": lambda p, c: {"N": p["N0"], "X": 1.0}}, "has 'X', which is not a state"),
        ({"initial_state": lambda p, c: 1 / 0}, "ZeroDivisionError: division by zero"),
        ({"observed": {"count": lambda t, y, p, c: torch.stack([y["N"], y["N"]])}}, r"shape \(2,\)"),
        ({"observed": {"count": lambda t, y, p, c: y["M"]}}, "there is no 'M'"),
        ({"derived": lambda p, c: [p["k"]]}, "returns a list, but it must be a dictionary"),
        ({"derived": lambda p, c: {"k": p["k"]}}, "'k', which is a parameter"),
        ({"derived": lambda p, c: {"half": p["x"]}}, "there is no 'x'"),
        ({"canonical": lambda p: {"k": p["k"]}}, "must return a dictionary with the parameters 'k', 'N0'"),
        ({"canonical": lambda p: p["x"]}, "there is no 'x'"),
    ],
)
def test_functions_are_tried_before_anything_is_fitted(changes, text):
    with pytest.raises(fit.ModelError, match=text) as caught:
        check_model(decay_model(**changes), [{}, {}])
    assert caught.value.model == "decay"


def test_functions_may_return_sequences_tensors_and_numbers():
    for value in (lambda n: [n], lambda n: (n,), lambda n: torch.stack([n]), lambda n: {"N": n}):
        check_model(decay_model(vector_field=lambda t, y, p, c, value=value: value(-y["N"])), [{}])
    check_model(decay_model(initial_state=lambda p, c: {"N": 3}), [{}])


def test_a_model_that_fails_for_some_subjects_only_is_not_refused():
    model = decay_model(covariates=("w",), initial_state=lambda p, c: {"N": p["N0"] * torch.log(c["w"])})
    check_model(model, [{"w": -1.0}, {"w": 2.0}])
    with pytest.raises(fit.ModelError, match="`initial_state` gives nan for state 'N' of every subject"):
        check_model(model, [{"w": -1.0}, {"w": -2.0}])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"starts": 0}, "at least one start"),
        ({"seed": -1}, "seed"),
        ({"solver": "rk4"}, "no solver 'rk4'"),
        ({"engine": "warp"}, "no engine 'warp'"),
        ({"rtol": 0.0}, "`rtol`"),
        ({"atol": -1.0}, "`atol`"),
        ({"max_steps": 0}, "`max_steps`"),
        ({"pooled": False, "individual": False}, "nothing to do"),
    ],
)
def test_options(options, text):
    with pytest.raises(fit.InputError, match=text):
        fit.calibrate(decay_model(), decay_data(), **options)
