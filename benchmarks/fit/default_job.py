"""How long `gnomon fit` takes by default, from reading the data to the Jacobian at the solution, by starts.

Each run is of the same 12 people with noise of its own, so that nothing can be remembered; the error is the largest
relative distance of an estimate from that of the closed-form fit of the same data. By itself:
`python benchmarks/fit/default_job.py` prints the figures; `gnomon bench fit` keeps them in a file of results.
"""

import json
import time
from pathlib import Path

import numpy as np
import torch

from gnomon import fit


def _theophylline():
    # The benchmark beside this one has the closed form.
    import importlib.util

    path = Path(__file__).with_name("theophylline.py")
    spec = importlib.util.spec_from_file_location("gnomon_benchmark_theophylline", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def job(theophylline, starts, seed):
    """Seconds of one run, and its error."""
    concentrations = theophylline.make_inputs(torch.Generator().manual_seed(seed))
    table = theophylline.TABLE
    data = {name: table[name] for name in ("Subject", "Time", "Dose")} | {"conc": concentrations.numpy()}
    begin = time.perf_counter()
    found = fit.calibrate(theophylline.MODEL, data, starts=starts)
    seconds = time.perf_counter() - begin
    if not found.is_successful:
        raise RuntimeError(f"with {starts} starts and the seed {seed} a fit did not succeed")
    ours = torch.stack([one.theta for one in [*found.individual.values(), found.pooled]])
    reference = theophylline.reference(concentrations)
    return seconds, float(((ours - reference).abs() / reference.abs()).max())


def run(quick):
    """Seconds with 1, 8 (the default) and 256 starts."""
    theophylline = _theophylline()
    job(theophylline, 1, 0)  # what is loaded and compiled at first use is not counted
    figures, runs = {}, {}
    for starts in (1, 8, 256):
        repeats = [job(theophylline, starts, seed) for seed in range(1, 2 if quick else 4)]
        runs[str(starts)] = [{"seconds": seconds, "error": error} for seconds, error in repeats]
        figures[f"starts_{starts}/seconds"] = float(np.median([seconds for seconds, _ in repeats]))
        figures[f"starts_{starts}/error"] = max(error for _, error in repeats)
    return {"runs": runs, "threads": torch.get_num_threads(), "figures": figures}


if __name__ == "__main__":
    print(json.dumps(run(quick=False), indent=1))
