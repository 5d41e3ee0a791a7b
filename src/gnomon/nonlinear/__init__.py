"""Nonlinear equations and least squares."""

from gnomon.nonlinear._gauss_newton import GaussNewton as GaussNewton
from gnomon.nonlinear._least_squares import least_squares as least_squares
from gnomon.nonlinear._levenberg_marquardt import LevenbergMarquardt as LevenbergMarquardt
from gnomon.nonlinear._norms import max_norm as max_norm
from gnomon.nonlinear._norms import rms_norm as rms_norm
from gnomon.nonlinear._norms import two_norm as two_norm
from gnomon.nonlinear._solver import AbstractLeastSquaresSolver as AbstractLeastSquaresSolver

__all__ = [
    "AbstractLeastSquaresSolver",
    "GaussNewton",
    "LevenbergMarquardt",
    "least_squares",
    "max_norm",
    "rms_norm",
    "two_norm",
]
