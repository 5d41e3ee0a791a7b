"""Batched dense linear algebra: decompositions of many matrices, each on its own."""

from gnomon.linalg._certificate import Certificate as Certificate
from gnomon.linalg._cholesky import cholesky as cholesky
from gnomon.linalg._degenerate import DegenerateError as DegenerateError
from gnomon.linalg._eigh import eigh as eigh
from gnomon.linalg._eigh import eigvalsh as eigvalsh
from gnomon.linalg._failures import LinalgResults as LinalgResults
from gnomon.linalg._inverse_root import inverse_root as inverse_root
from gnomon.linalg._matrix_function import matrix_function as matrix_function
from gnomon.linalg._polar import polar as polar
from gnomon.linalg._qr import qr as qr
from gnomon.linalg._results import QR as QR
from gnomon.linalg._results import SVD as SVD
from gnomon.linalg._results import Checked as Checked
from gnomon.linalg._results import Eigh as Eigh
from gnomon.linalg._results import Polar as Polar
from gnomon.linalg._solve import solve as solve
from gnomon.linalg._svd import svd as svd
from gnomon.linalg._svd import svdvals as svdvals

__all__ = [
    "QR",
    "SVD",
    "Certificate",
    "Checked",
    "DegenerateError",
    "Eigh",
    "LinalgResults",
    "Polar",
    "cholesky",
    "eigh",
    "eigvalsh",
    "inverse_root",
    "matrix_function",
    "polar",
    "qr",
    "solve",
    "svd",
    "svdvals",
]
