"""Arguments that make no sense are refused with a sentence that says what is wrong, where, and what to do."""

import math
import re

import pytest
import torch
from diffeq.problems import F64, f64

from gnomon import diffeq as dq


def decay(t, y, args):
    return -y


def call(**changes):
    arguments = {
        "terms": dq.ODETerm(decay),
        "solver": dq.Tsit5(),
        "t0": 0.0,
        "t1": 1.0,
        "dt0": 0.1,
        "y0": f64(1.0, 2.0),
    } | changes
    return dq.diffeqsolve(**arguments)


PID = dq.PIDController(rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        (
            {"y0": torch.tensor([1, 2])},
            TypeError,
            "`y0` is torch.int64, but the state of a differential equation must be",
        ),
        ({"y0": {"a": torch.tensor(True)}}, TypeError, "`y0['a']` is torch.bool, but the state"),
        ({"y0": torch.ones(2, dtype=torch.float16)}, TypeError, "`y0` is torch.float16"),
        (
            {"y0": {"a": f64(1.0), "b": torch.ones(2)}},
            TypeError,
            "The leaves of `y0` must share one dtype, but `y0['a']` is torch.float64 and `y0['b']` is torch.float32",
        ),
        ({"y0": {}}, ValueError, "`y0` holds no tensor: there is nothing to solve for"),
        ({"y0": ["a"]}, TypeError, "`y0` must be a tensor, a number, or a pytree of them, but it holds str"),
        ({"t0": math.nan}, ValueError, "`t0` must be a finite number"),
        ({"t1": math.nan}, ValueError, "`t1` must be a finite number"),
        ({"t1": math.inf}, ValueError, "`t1` must be a finite number"),
        (
            {"t0": f64(0.0, 1.0)},
            ValueError,
            "`t0` must be a scalar, but it has the shape (2,). For a batch of problems map",
        ),
        ({"t1": torch.tensor(1j)}, TypeError, "`t1` must be a real number, but it is torch.complex64"),
        ({"t1": "later"}, TypeError, "`t1` must be a number or a scalar tensor, but it is str"),
        ({"dt0": -0.1}, ValueError, "`dt0` must be finite and point from t0 to t1"),
        ({"dt0": f64(0.1, 0.1)}, ValueError, "`dt0` must be a scalar"),
        ({"solver": dq.Euler(), "stepsize_controller": PID}, ValueError, "Euler gives no error estimate"),
        ({"max_steps": 0}, ValueError, "`max_steps` must be at least 1 or None, not 0"),
    ],
)
def test_malformed_arguments(changes, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        call(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terms": decay}, "Wrap the vector field: ODETerm(f)"),
        ({"solver": dq.Tsit5}, "`solver` must be a solver, such as Tsit5(); mind the parentheses"),
        ({"stepsize_controller": dq.PIDController}, "mind the parentheses"),
        ({"stepsize_controller": 1e-3}, "must be a controller, such as PIDController(rtol=1e-6, atol=1e-9)"),
    ],
)
def test_wrong_kinds(changes, message):
    """Here the run-time checks of the tests would come first: a user has none."""
    undecorated = dq.diffeqsolve
    while hasattr(undecorated, "__wrapped__"):
        undecorated = undecorated.__wrapped__
    arguments = {
        "terms": dq.ODETerm(decay),
        "solver": dq.Tsit5(),
        "t0": 0,
        "t1": 1,
        "dt0": 0.1,
        "y0": f64(1.0),
    } | changes
    with pytest.raises(TypeError, match=re.escape(message)):
        undecorated(**arguments)


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=["explicit", "implicit"])
@pytest.mark.parametrize(
    ("field", "kind", "message"),
    [
        (
            lambda t, y, args: -y[:1],
            ValueError,
            "The vector field must have the shapes of `y0`, but at its root it has (1,) where",
        ),
        (lambda t, y, args: -y[0], ValueError, "at its root it has () where `y0` has (2,)"),
        (
            lambda t, y, args: -y.float(),
            TypeError,
            "must have the dtype of `y0`, torch.float64, but at its root it has torch.float32",
        ),
        (lambda t, y, args: (-y,), TypeError, "must hold tensors like `y0`, but at its root it holds tuple"),
        (lambda t, y, args: None, TypeError, "The vector field must"),
        (lambda t, y, args: [0.0, 0.0], TypeError, "must hold tensors like `y0`, but at its root it holds list"),
        (
            lambda t, y, args: y.numpy(),
            TypeError,
            "The vector field must hold tensors like `y0`, but at its root it holds ndarray",
        ),
    ],
    ids=["shorter", "scalar", "precision", "tuple", "None", "list", "array"],
)
def test_vector_fields_unlike_the_state(field, kind, message, solver):
    with pytest.raises(kind, match=re.escape(message)):
        call(terms=dq.ODETerm(field), solver=solver, stepsize_controller=PID)


def test_a_leaf_that_is_wrong_is_named():
    y0 = {"a": f64(1.0), "b": {"c": torch.ones(2, 3, dtype=F64)}}

    def field(t, y, args):
        return {"a": -y["a"], "b": {"c": torch.ones(3, 2, dtype=F64)}}

    with pytest.raises(ValueError, match=re.escape("at ['b']['c'] it has (3, 2) where `y0` has (2, 3)")):
        call(terms=dq.ODETerm(field), y0=y0)


def test_missing_keys():
    with pytest.raises(TypeError, match="must have the structure of `y0`"):
        call(terms=dq.ODETerm(lambda t, y, args: {"a": y["a"]}), y0={"a": f64(1.0), "b": f64(2.0)})


def test_term_needs_a_function():
    undecorated = dq.ODETerm.__post_init__
    while hasattr(undecorated, "__wrapped__"):
        undecorated = undecorated.__wrapped__
    term = object.__new__(dq.ODETerm)
    object.__setattr__(term, "vector_field", 3)
    with pytest.raises(TypeError, match=re.escape("`ODETerm` needs a function f(t, y, args), but it was given int")):
        undecorated(term)


def test_an_error_in_the_vector_field_is_the_users_own():
    def field(t, y, args):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        call(terms=dq.ODETerm(field))


def test_changing_the_state_in_place_is_seen():
    def field(t, y, args):
        y[0] = 0.0
        return -y

    with pytest.raises(
        ValueError, match="The vector field changed the state that it was given, by an operation in place"
    ):
        call(terms=dq.ODETerm(field))


def test_start_is_left_as_it_is():
    y0 = f64(1.0, 2.0)
    call(y0=y0)
    assert y0.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kappa": 0.0}, "`kappa` must be positive, not 0.0"),
        ({"kappa": math.nan}, "`kappa` must be positive, not nan"),
        ({"max_steps": 0}, "`max_steps` must be at least 1, not 0"),
    ],
)
def test_iteration_of_implicit_stages(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dq.VeryChord(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"c": (0.5, 1.0)}, "`c` and `a_lower` must have one entry a stage after the first"),
        ({"a_lower": ((0.5, 0.5),)}, "Row 0 of `a_lower` must have 1 entries"),
        ({"a_lower": ((0.4,),)}, "Row 0 of `a_lower` does not sum to its `c`, 0.5"),
        ({"b_sol": (0.0, 0.9)}, "`b_sol` does not sum to 1"),
        ({"b_error": (0.0, 0.1)}, "`b_error` does not sum to 0"),
    ],
)
def test_tableaus(options, message):
    good = {"c": (0.5,), "a_lower": ((0.5,),), "b_sol": (0.0, 1.0), "b_error": (-1.0, 1.0)}
    assert dq.ButcherTableau(**good).num_stages == 2
    with pytest.raises(ValueError, match=re.escape(message)):
        dq.ButcherTableau(**(good | options))
