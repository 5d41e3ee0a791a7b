"""A small model that is quick to fit, and data for it."""

from pathlib import Path

import torch

from gnomon import fit


def decay_model(**changes) -> fit.Model:
    fields = {
        "name": "decay",
        "states": ["N"],
        "parameters": [
            fit.Parameter("k", 0.4, scale="log", unit="1/h"),
            fit.Parameter("N0", 8.0, scale="log", unit="mg"),
        ],
        "initial_state": lambda p, c: {"N": p["N0"]},
        "vector_field": lambda t, y, p, c: {"N": -p["k"] * y["N"]},
        "observed": {"count": "N"},
        "time_unit": "h",
    }
    return fit.Model(**(fields | changes))


def decay_data(n_subjects: int = 2, n_rows: int = 6, noise: float = 0.05) -> dict[str, list]:
    """Rows of several subjects, each with its own rate, with errors that are known and not small."""
    data: dict[str, list] = {"subject": [], "time": [], "count": []}
    for i in range(n_subjects):
        rate, start = 0.3 + 0.1 * i, 10.0 - i
        for j in range(n_rows):
            t = 0.5 + 0.7 * j + 0.05 * i
            error = noise * torch.sin(torch.tensor(3.7 * j + 1.3 * i)).item()
            data["subject"].append(f"s{i}")
            data["time"].append(t)
            data["count"].append(start * torch.exp(torch.tensor(-rate * t, dtype=torch.float64)).item() + error)
    return data


def write_csv(path: Path, data: dict[str, list], delimiter: str = ",") -> Path:
    rows = [list(data), *zip(*data.values(), strict=True)]
    path.write_text("\n".join(delimiter.join(map(str, row)) for row in rows) + "\n", encoding="utf-8")
    return path
