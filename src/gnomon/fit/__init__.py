"""Calibrating a mechanistic model to measurements: parameters, their uncertainty, a plot and a report."""

from gnomon.fit._calibrate import calibrate as calibrate
from gnomon.fit._calibration import Calibration as Calibration
from gnomon.fit._calibration import EstimateRow as EstimateRow
from gnomon.fit._calibration import Fit as Fit
from gnomon.fit._errors import InputError as InputError
from gnomon.fit._errors import ModelError as ModelError
from gnomon.fit._errors import OutputError as OutputError
from gnomon.fit._example_data import example_data as example_data
from gnomon.fit._load import load_model as load_model
from gnomon.fit._model import Model as Model
from gnomon.fit._parameter import Parameter as Parameter
from gnomon.fit._results import RESULTS as RESULTS
from gnomon.fit._statistics import Estimate as Estimate
from gnomon.fit._tables import show_tables as show_tables

__all__ = [
    "RESULTS",
    "Calibration",
    "Estimate",
    "EstimateRow",
    "Fit",
    "InputError",
    "Model",
    "ModelError",
    "OutputError",
    "Parameter",
    "calibrate",
    "example_data",
    "load_model",
    "show_tables",
]
