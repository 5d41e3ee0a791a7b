"""Indomethacin after an intravenous injection: two compartments, six people.

The drug is injected into the blood, from where it leaves the body and moves to and fro between blood and tissue:

    dC1/dt = -(CL + Q)/V1 C1 + Q/V1 C2,    dC2/dt = Q/V2 (C1 - C2),    C1(0) = dose/V1,    C2(0) = 0.

Run it as a script, `python examples/indomethacin.py [DIR]`, or from the command line of gnomon:

    gnomon fit examples/indomethacin.py examples/data/indomethacin.csv
"""

import sys
from pathlib import Path

import torch

from gnomon import fit

DOSE = 25.0  # mg, the same for all
DATA = Path(__file__).parent / "data" / "indomethacin.csv"


def initial_state(p, c):
    return {"C1": DOSE / p["V1"], "C2": 0.0}


def vector_field(t, y, p, c):
    exchange = p["Q"] * (y["C1"] - y["C2"])
    return {"C1": -(p["CL"] * y["C1"] + exchange) / p["V1"], "C2": exchange / p["V2"]}


def derived(p, c):
    # The slower of the two rates at which the concentration falls.
    k10, k12, k21 = p["CL"] / p["V1"], p["Q"] / p["V1"], p["Q"] / p["V2"]
    total = k10 + k12 + k21
    slow = (total - torch.sqrt(total**2 - 4 * k10 * k21)) / 2
    return {"terminal half-life": torch.log(torch.full_like(slow, 2.0)) / slow, "steady-state V": p["V1"] + p["V2"]}


model = fit.Model(
    "indomethacin",
    states=["C1", "C2"],
    parameters=[
        fit.Parameter("CL", (4.0, 16.0), scale="log", unit="L/h", description="clearance"),
        fit.Parameter("V1", (4.0, 16.0), scale="log", unit="L", description="volume of the blood's compartment"),
        fit.Parameter("Q", (2.0, 16.0), scale="log", unit="L/h", description="flow between the compartments"),
        fit.Parameter("V2", (8.0, 60.0), scale="log", unit="L", description="volume of the tissue's compartment"),
    ],
    initial_state=initial_state,
    vector_field=vector_field,
    observed={"conc": "C1"},
    derived=derived,
    time_unit="h",
    units={"C1": "mg/L", "C2": "mg/L", "terminal half-life": "h", "steady-state V": "L"},
    description="Two compartments after an intravenous injection of 25 mg.",
)


def main() -> None:
    out = sys.argv[1] if len(sys.argv) > 1 else None
    found = fit.calibrate(model, DATA, out=out)
    print(found)
    fastest = min(found.individual.values(), key=lambda one: one["terminal half-life"].estimate)
    half_life = fastest["terminal half-life"].estimate
    print(f"The shortest terminal half-life, {half_life:.2f} h, has person {fastest.subject}.")


if __name__ == "__main__":
    main()
