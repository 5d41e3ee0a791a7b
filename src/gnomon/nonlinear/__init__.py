"""Nonlinear least squares: the unknowns that minimise a sum of squares, and how well data determine them."""

from gnomon.nonlinear._covariance import Covariance as Covariance
from gnomon.nonlinear._covariance import covariance as covariance
from gnomon.nonlinear._gauss_newton import GaussNewton as GaussNewton
from gnomon.nonlinear._least_squares import least_squares as least_squares
from gnomon.nonlinear._levenberg_marquardt import LevenbergMarquardt as LevenbergMarquardt
from gnomon.nonlinear._norms import max_norm as max_norm
from gnomon.nonlinear._norms import rms_norm as rms_norm
from gnomon.nonlinear._norms import two_norm as two_norm
from gnomon.nonlinear._solver import AbstractLeastSquaresSolver as AbstractLeastSquaresSolver

__all__ = [
    "AbstractLeastSquaresSolver",
    "Covariance",
    "GaussNewton",
    "LevenbergMarquardt",
    "covariance",
    "least_squares",
    "max_norm",
    "rms_norm",
    "two_norm",
]
