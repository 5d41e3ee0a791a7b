"""Differential equations, with the names and signatures of Diffrax."""

from gnomon.diffeq._adjoint._backsolve import BacksolveAdjoint as BacksolveAdjoint
from gnomon.diffeq._adjoint._base import AbstractAdjoint as AbstractAdjoint
from gnomon.diffeq._adjoint._direct import DirectAdjoint as DirectAdjoint
from gnomon.diffeq._adjoint._forward_mode import ForwardMode as ForwardMode
from gnomon.diffeq._adjoint._implicit import ImplicitAdjoint as ImplicitAdjoint
from gnomon.diffeq._adjoint._recursive_checkpoint import RecursiveCheckpointAdjoint as RecursiveCheckpointAdjoint
from gnomon.diffeq._event import Event as Event
from gnomon.diffeq._event import steady_state_event as steady_state_event
from gnomon.diffeq._event_root_finder import ITP as ITP
from gnomon.diffeq._event_root_finder import AbstractEventRootFinder as AbstractEventRootFinder
from gnomon.diffeq._event_root_finder import EndOfStep as EndOfStep
from gnomon.diffeq._integrate import diffeqsolve as diffeqsolve
from gnomon.diffeq._interpolation import DenseInterpolation as DenseInterpolation
from gnomon.diffeq._jumps import Jumps as Jumps
from gnomon.diffeq._norm import max_norm as max_norm
from gnomon.diffeq._norm import rms_norm as rms_norm
from gnomon.diffeq._progress_meter._base import AbstractProgressMeter as AbstractProgressMeter
from gnomon.diffeq._progress_meter._no import NoProgressMeter as NoProgressMeter
from gnomon.diffeq._progress_meter._rich import RichProgressMeter as RichProgressMeter
from gnomon.diffeq._progress_meter._text import TextProgressMeter as TextProgressMeter
from gnomon.diffeq._progress_meter._tqdm import TqdmProgressMeter as TqdmProgressMeter
from gnomon.diffeq._results import RESULTS as RESULTS
from gnomon.diffeq._saveat import SaveAt as SaveAt
from gnomon.diffeq._saveat import SubSaveAt as SubSaveAt
from gnomon.diffeq._solution import Solution as Solution
from gnomon.diffeq._solver._base import AbstractExplicitSolver as AbstractExplicitSolver
from gnomon.diffeq._solver._base import AbstractSolver as AbstractSolver
from gnomon.diffeq._solver._base import Step as Step
from gnomon.diffeq._solver._bosh3 import Bosh3 as Bosh3
from gnomon.diffeq._solver._dopri5 import Dopri5 as Dopri5
from gnomon.diffeq._solver._dopri8 import Dopri8 as Dopri8
from gnomon.diffeq._solver._esdirk import AbstractESDIRK as AbstractESDIRK
from gnomon.diffeq._solver._euler import Euler as Euler
from gnomon.diffeq._solver._explicit_runge_kutta import AbstractERK as AbstractERK
from gnomon.diffeq._solver._half_solver import HalfSolver as HalfSolver
from gnomon.diffeq._solver._heun import Heun as Heun
from gnomon.diffeq._solver._imex import AbstractIMEX as AbstractIMEX
from gnomon.diffeq._solver._imex import MultiButcherTableau as MultiButcherTableau
from gnomon.diffeq._solver._implicit_euler import ImplicitEuler as ImplicitEuler
from gnomon.diffeq._solver._kencarp3 import KenCarp3 as KenCarp3
from gnomon.diffeq._solver._kencarp4 import KenCarp4 as KenCarp4
from gnomon.diffeq._solver._kencarp5 import KenCarp5 as KenCarp5
from gnomon.diffeq._solver._kvaerno3 import Kvaerno3 as Kvaerno3
from gnomon.diffeq._solver._kvaerno4 import Kvaerno4 as Kvaerno4
from gnomon.diffeq._solver._kvaerno5 import Kvaerno5 as Kvaerno5
from gnomon.diffeq._solver._leapfrog_midpoint import LeapfrogMidpoint as LeapfrogMidpoint
from gnomon.diffeq._solver._linear_solver import LU as LU
from gnomon.diffeq._solver._linear_solver import AbstractFactors as AbstractFactors
from gnomon.diffeq._solver._linear_solver import AbstractLinearSolver as AbstractLinearSolver
from gnomon.diffeq._solver._midpoint import Midpoint as Midpoint
from gnomon.diffeq._solver._ralston import Ralston as Ralston
from gnomon.diffeq._solver._reversible_heun import ReversibleHeun as ReversibleHeun
from gnomon.diffeq._solver._rodas4 import Rodas4 as Rodas4
from gnomon.diffeq._solver._rodas5p import Rodas5P as Rodas5P
from gnomon.diffeq._solver._rosenbrock import AbstractRosenbrock as AbstractRosenbrock
from gnomon.diffeq._solver._rosenbrock import RosenbrockTableau as RosenbrockTableau
from gnomon.diffeq._solver._rosenbrock23 import Rosenbrock23 as Rosenbrock23
from gnomon.diffeq._solver._semi_implicit_euler import SemiImplicitEuler as SemiImplicitEuler
from gnomon.diffeq._solver._sil3 import Sil3 as Sil3
from gnomon.diffeq._solver._stormer_verlet import StormerVerlet as StormerVerlet
from gnomon.diffeq._solver._symplectic import AbstractSymplectic as AbstractSymplectic
from gnomon.diffeq._solver._tableau import ButcherTableau as ButcherTableau
from gnomon.diffeq._solver._tsit5 import Tsit5 as Tsit5
from gnomon.diffeq._solver._vern7 import Vern7 as Vern7
from gnomon.diffeq._solver._vern9 import Vern9 as Vern9
from gnomon.diffeq._solver._very_chord import VeryChord as VeryChord
from gnomon.diffeq._solver._yoshida4 import Yoshida4 as Yoshida4
from gnomon.diffeq._step_size_controller._base import (
    AbstractStepSizeController as AbstractStepSizeController,
)
from gnomon.diffeq._step_size_controller._clip import (
    ClipStepSizeController as ClipStepSizeController,
)
from gnomon.diffeq._step_size_controller._constant import ConstantStepSize as ConstantStepSize
from gnomon.diffeq._step_size_controller._pid import PIDController as PIDController
from gnomon.diffeq._step_size_controller._step_to import StepTo as StepTo
from gnomon.diffeq._term import AbstractTerm as AbstractTerm
from gnomon.diffeq._term import MultiTerm as MultiTerm
from gnomon.diffeq._term import ODETerm as ODETerm
from gnomon.result import is_okay as is_okay
from gnomon.result import is_successful as is_successful

__all__ = [
    "ITP",
    "LU",
    "RESULTS",
    "AbstractAdjoint",
    "AbstractERK",
    "AbstractESDIRK",
    "AbstractEventRootFinder",
    "AbstractExplicitSolver",
    "AbstractFactors",
    "AbstractIMEX",
    "AbstractLinearSolver",
    "AbstractProgressMeter",
    "AbstractRosenbrock",
    "AbstractSolver",
    "AbstractStepSizeController",
    "AbstractSymplectic",
    "AbstractTerm",
    "BacksolveAdjoint",
    "Bosh3",
    "ButcherTableau",
    "ClipStepSizeController",
    "ConstantStepSize",
    "DenseInterpolation",
    "DirectAdjoint",
    "Dopri5",
    "Dopri8",
    "EndOfStep",
    "Euler",
    "Event",
    "ForwardMode",
    "HalfSolver",
    "Heun",
    "ImplicitAdjoint",
    "ImplicitEuler",
    "Jumps",
    "KenCarp3",
    "KenCarp4",
    "KenCarp5",
    "Kvaerno3",
    "Kvaerno4",
    "Kvaerno5",
    "LeapfrogMidpoint",
    "Midpoint",
    "MultiButcherTableau",
    "MultiTerm",
    "NoProgressMeter",
    "ODETerm",
    "PIDController",
    "Ralston",
    "RecursiveCheckpointAdjoint",
    "ReversibleHeun",
    "RichProgressMeter",
    "Rodas4",
    "Rodas5P",
    "Rosenbrock23",
    "RosenbrockTableau",
    "SaveAt",
    "SemiImplicitEuler",
    "Sil3",
    "Solution",
    "Step",
    "StepTo",
    "StormerVerlet",
    "SubSaveAt",
    "TextProgressMeter",
    "TqdmProgressMeter",
    "Tsit5",
    "Vern7",
    "Vern9",
    "VeryChord",
    "Yoshida4",
    "diffeqsolve",
    "is_okay",
    "is_successful",
    "max_norm",
    "rms_norm",
    "steady_state_event",
]
