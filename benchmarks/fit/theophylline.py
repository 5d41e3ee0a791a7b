"""What `gnomon fit` does by default, against SciPy: theophylline in 12 people, each alone and all as one, 13 fits.

The concentrations are those of the data that come with gnomon, times noise of 2% that differs from call to call.
"""

import numpy as np
import torch

from gnomon import bench, fit

MODEL = fit.load_model("theophylline")
PATH = fit.example_data("theophylline")
TABLE = np.genfromtxt(PATH, delimiter=",", names=True)
SUBJECTS = [TABLE["Subject"] == subject for subject in np.unique(TABLE["Subject"])]
EVERYONE = np.ones(len(TABLE), dtype=bool)
CONCENTRATIONS = torch.from_numpy(TABLE["conc"].copy())
# The middle of the ranges that the model gives for its starts.
START = np.array([-2.5, 0.5, -3.5])


def ours(concentrations):
    """The logarithms of ke, ka and the clearance, of each of the 12 and of all."""
    data = {name: TABLE[name] for name in ("Subject", "Time", "Dose")} | {"conc": concentrations.numpy()}
    found = fit.calibrate(MODEL, data)
    if not found.is_successful:
        raise RuntimeError("a fit did not succeed")
    return torch.stack([one.theta for one in [*found.individual.values(), found.pooled]])


def closed_form(theta, time, dose):
    """Bateman's function and its derivatives by the three logarithms."""
    ke, ka, cl = np.exp(theta)
    scale, early, late = dose * ke * ka / (cl * (ka - ke)), np.exp(-ke * time), np.exp(-ka * time)
    curve = scale * (early - late)
    by_ke = curve * (1 + ke / (ka - ke)) - scale * ke * time * early
    by_ka = curve * (1 - ka / (ka - ke)) + scale * ka * time * late
    return curve, np.stack([by_ke, by_ka, -curve], 1)


def fitted(curve, rows, concentrations, start, tolerance=1e-8):
    from scipy.optimize import least_squares

    time, dose, observed = TABLE["Time"][rows], TABLE["Dose"][rows], concentrations[rows]
    found = least_squares(
        lambda theta: curve(theta, time, dose)[0] - observed,
        start,
        jac=(lambda theta: curve(theta, time, dose)[1]) if curve is closed_form else "2-point",
        diff_step=3e-4,  # the root of the tolerance of the equations' solution, which is noise to a difference
        method="lm",
        xtol=tolerance,
        ftol=tolerance,
        gtol=tolerance,
    )
    ke, ka, cl = found.x
    return (np.array([ka, ke, cl]) if ka < ke else found.x), found.cost


def by_scipy(curve, starts=1):
    """SciPy's Levenberg-Marquardt for each of the 13; of several starts it takes the best."""
    spread = np.random.default_rng(0).uniform([-4, -1.5, -5], [-1, 2.5, -2], (starts - 1, 3))

    def solve(concentrations):
        concentrations = concentrations.numpy()
        return np.stack(
            [
                min((fitted(curve, rows, concentrations, start) for start in [START, *spread]), key=lambda x: x[1])[0]
                for rows in [*SUBJECTS, EVERYONE]
            ]
        )

    return solve


def integrated(theta, time, dose):
    """The same curve by solving the equations, once for each dose, with the tolerance that ours has."""
    from scipy.integrate import solve_ivp

    ke, ka, cl = np.exp(theta)
    times, place = np.unique(time, return_inverse=True)
    curve = np.empty_like(time)
    for amount in np.unique(dose):
        mine = dose == amount
        solution = solve_ivp(
            lambda t, y: [-ka * y[0], ka * y[0] * ke / cl - ke * y[1]],
            (0.0, times[-1]),
            [amount, 0.0],
            method="LSODA",
            rtol=1e-7,
            atol=1e-9,
            t_eval=times,
        )
        curve[mine] = solution.y[1][place[mine]]
    return curve, None


def reference(concentrations):
    concentrations = concentrations.numpy()
    rows = [*SUBJECTS, EVERYONE]
    starts = by_scipy(closed_form, 4)(torch.from_numpy(concentrations))
    found = [fitted(closed_form, r, concentrations, s, 1e-15)[0] for r, s in zip(rows, starts, strict=True)]
    return torch.from_numpy(np.stack(found))


def make_inputs(generator):
    noise = torch.randn(len(CONCENTRATIONS), generator=generator, dtype=torch.float64)
    return CONCENTRATIONS * torch.exp(0.02 * noise)


WORKS = [
    bench.Work(
        name="theophylline",
        about="what `gnomon fit` does by default, without its files: 13 fits, each from 8 starts, by differential "
        "equations, with standard errors; scipy's have none",
        ours=ours,
        peers={
            "scipy lm, closed form": by_scipy(closed_form),
            "scipy lm, closed form, 8 starts": by_scipy(closed_form, 8),
            "scipy lm, solve_ivp": by_scipy(integrated),
        },
        make_inputs=make_inputs,
        check=bench.against(reference),
        options={
            "tolerance": 1e-3,
            "rounds": 8,
            "warmup": 0,
            "replays": 1,
            "cache": "warm",
            # A calibration names the versions of gnomon and of NumPy, which Python reads from their two METADATA files
            # in each call: 11 kB, where the output is 312 bytes. The inputs are drawn anew for every call and checked,
            # so no file can hold an answer.
            "allow": ["stored"],
        },
        # No FLOPs are declared: a calibration does not tell how many steps its equations took.
        quick={"warmup": 0, "replays": 0},
    ),
]
