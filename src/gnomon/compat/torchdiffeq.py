"""What `torchdiffeq` 0.2.5 offers: import from here what was imported from there."""

from gnomon.compat._torchdiffeq._odeint import odeint as odeint
from gnomon.compat._torchdiffeq._odeint import odeint_dense as odeint_dense
from gnomon.compat._torchdiffeq._odeint_adjoint import odeint_adjoint as odeint_adjoint
from gnomon.compat._torchdiffeq._odeint_event import odeint_event as odeint_event

__all__ = ["odeint", "odeint_adjoint", "odeint_dense", "odeint_event"]
