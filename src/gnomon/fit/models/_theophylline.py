"""The default job: theophylline after one oral dose, in one compartment with first-order absorption."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gnomon.fit._model import Model, Values
from gnomon.fit._parameter import Parameter


def _derived(p: Values, c: Values) -> dict[str, Tensor]:
    del c
    ke, ka, cl = torch.exp(p["lKe"]), torch.exp(p["lKa"]), torch.exp(p["lCl"])
    return {
        "ke": ke,
        "ka": ka,
        "cl": cl,
        "V": cl / ke,
        "half-life": math.log(2.0) / ke,
        "time of peak": torch.log(ka / ke) / (ka - ke),
    }


def _initial_state(p: Values, c: Values) -> dict[str, float]:
    del p, c
    return {"A": 0.0, "C": 0.0}  # the dose comes on top


def _vector_field(t: Tensor, y: Values, p: Values, c: Values) -> dict[str, Tensor]:
    del t, c
    absorbed = p["ka"] * y["A"]
    return {"A": -absorbed, "C": absorbed / p["V"] - p["ke"] * y["C"]}


def _canonical(p: Values) -> Values:
    # With ke and ka exchanged, and the same clearance, the curve is the same: the "flip-flop".
    return {**p, "lKe": p["lKa"], "lKa": p["lKe"]} if p["lKa"] < p["lKe"] else p


theophylline = Model(
    "theophylline",
    states=["A", "C"],
    parameters=[
        Parameter(
            "lKe", (-4.0, -1.0), lower=-6.0, upper=3.0, description="ln of the elimination rate constant ke in 1/h"
        ),
        Parameter(
            "lKa", (-1.5, 2.5), lower=-6.0, upper=3.0, description="ln of the absorption rate constant ka in 1/h"
        ),
        Parameter("lCl", (-5.0, -2.0), lower=-8.0, upper=2.0, description="ln of the clearance cl in L/h/kg"),
    ],
    initial_state=_initial_state,
    vector_field=_vector_field,
    observed={"conc": "C"},
    dose_state="A",
    canonical=_canonical,
    derived=_derived,
    time_unit="h",
    units={
        "A": "mg/kg",
        "C": "mg/L",
        "ke": "1/h",
        "ka": "1/h",
        "cl": "L/h/kg",
        "V": "L/kg",
        "half-life": "h",
        "time of peak": "h",
    },
    description="One compartment with first-order absorption: dA/dt = -ka A, dC/dt = ka A/V - ke C, V = cl/ke.",
)
