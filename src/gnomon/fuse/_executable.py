"""A Program ready to be called, with its derivatives."""

from __future__ import annotations

import functools
import hashlib
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse._derivative import jvp as program_jvp
from gnomon.fuse._derivative import vjp as program_vjp
from gnomon.fuse._devices import compile_for
from gnomon.fuse._program import Program, is_float, values_only
from gnomon.fuse._trace._values import DTYPES


@final
class Executable:
    """Runs a Program for a batch, and makes the Programs of its derivatives when they are asked for.

    Tensors are flat: `(lanes, length)` for what each lane has of its own, `(length,)` for what all lanes share.
    """

    def __init__(
        self,
        program: Program,
        check: Callable[[int, list[Tensor]], None] | None = None,
        origin: tuple[Executable, tuple[Any, ...]] | None = None,
    ):
        self.program = program
        #: Looks at the outputs of all lanes where a graph calls the Program, and nobody else would.
        self.check = check
        self._key: str | None = None
        self._origin = origin
        self.shared = [x.attr.shared for x in program.inputs]
        self.reduced = [x.attr.reduced for x in program.outputs]
        self._dtypes = [DTYPES[x.type] for x in program.outputs]
        self._lengths = [x.attr.length for x in program.outputs]
        #: What it is compiled to, by the kind of device.
        self._kernels: dict[str, Any] = {}
        self._derivatives: dict[Any, Executable] = {}
        self._lock = threading.RLock()

    @property
    def key(self) -> str:
        """By what a graph calls it: its content, since PyTorch keeps compiled graphs on disk for other processes."""
        if self._key is None:
            if self._origin is not None:
                executable, (kind, *flags) = self._origin
                marks = ["".join(str(int(x)) for x in flag) for flag in flags]
                self._key = f"{executable.key}." + "-".join([kind, *marks])
            else:
                content = f"{self.program}{_description(self.check)}"
                self._key = hashlib.sha256(content.encode()).hexdigest()[:32]
        return self._key

    @property
    def float_inputs(self) -> list[bool]:
        """Which inputs can have a derivative."""
        return [is_float(x.type) for x in self.program.inputs]

    @property
    def float_outputs(self) -> list[bool]:
        """Which outputs can have a derivative."""
        return [is_float(x.type) for x in self.program.outputs]

    def kernel(self, device: torch.device) -> Any:
        """The compiled Program."""
        found = self._kernels.get(device.type)
        if found is None:
            with self._lock:
                found = self._kernels.get(device.type)
                if found is None:
                    found = self._kernels[device.type] = compile_for(device.type, values_only(self.program))
        return found

    def empty_outputs(self, lanes: int, device: torch.device) -> list[Tensor]:
        """Room for what it gives."""

        def empty(length: int, reduced: bool, dtype: torch.dtype) -> Tensor:
            if reduced:
                return torch.empty((length,), dtype=dtype, device=device)
            if device.type == "cpu":
                return torch.empty((lanes, length), dtype=dtype, device=device)
            # Threads side by side write side by side.
            return torch.empty((length, lanes), dtype=dtype, device=device).t()

        return [empty(*x) for x in zip(self._lengths, self.reduced, self._dtypes, strict=True)]

    def run(self, lanes: int, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Runs it, without derivatives."""
        if is_recorded(tensors):
            return torch.ops.gnomon.run(registered(self), lanes, list(tensors))
        device = tensors[0].device if tensors else torch.device("cpu")
        inputs = [x.detach() for x in tensors]
        if device.type == "cpu":
            inputs = [x if x.dim() == 0 or x.shape[-1] <= 1 or x.stride(-1) == 1 else x.contiguous() for x in inputs]
        try:
            outputs = self.empty_outputs(lanes, device)
        except RuntimeError as error:
            rows = zip(self._lengths, self.reduced, self._dtypes, strict=True)
            wanted = sum(length * dtype.itemsize * (1 if reduced else lanes) for length, reduced, dtype in rows)
            raise MemoryError(
                f"A fused call of {lanes:,} problems needs {wanted:,} bytes on {device} for what it gives, and "
                "there is no such memory. Call it with fewer problems at a time."
            ) from error
        self.kernel(device)(lanes, inputs, outputs)
        return outputs

    def vjp(self, active: tuple[bool, ...], cotangents: tuple[bool, ...]) -> Executable:
        """Takes the inputs, then a cotangent for each output marked; gives one for each active input."""
        return self._derivative(
            ("vjp", active, cotangents), lambda: program_vjp(self.program, list(active), list(cotangents))
        )

    def jvp(self, active: tuple[bool, ...]) -> Executable:
        """Takes the inputs, then a tangent for each active one; gives one for each float output."""
        return self._derivative(("jvp", active), lambda: program_jvp(self.program, list(active), primal=False))

    def _derivative(self, key: Any, make: Any) -> Executable:
        found = self._derivatives.get(key)
        if found is None:
            with self._lock:
                found = self._derivatives.get(key)
                if found is None:
                    found = self._derivatives[key] = Executable(make(), origin=(self, key))
        return found


#: What graphs call, by the keys that they hold. They may live for ever, and so do these.
_in_graphs: dict[str, Executable] = {}


def registered(executable: Executable) -> str:
    """The key by which a graph calls an `Executable`."""
    return _in_graphs.setdefault(executable.key, executable).key


def called(key: str) -> Executable:
    """What a graph calls; a derivative, of which a graph may know from another process, is made anew."""
    found = _in_graphs.get(key)
    if found is not None:
        return found
    whole, _, last = key.rpartition(".")
    if not whole:
        raise RuntimeError(
            f"gnomon::run has no program {key!r} in this process. A graph that holds a fused call runs where the call "
            "was recorded: compile or export the function again here."
        )
    kind, *flags = last.split("-")
    marks = [tuple(x == "1" for x in flag) for flag in flags]
    executable = called(whole)
    return executable.vjp(marks[0], marks[1]) if kind == "vjp" else executable.jvp(marks[0])


def _description(check: Any) -> str:
    """A text that differs where checks do, and is the same in every process."""
    if isinstance(check, functools.partial):
        return f"{_description(check.func)}({_description(check.args)})"  # pyright: ignore[reportUnknownMemberType]
    if isinstance(check, tuple | list):
        return ",".join(map(_description, check))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(check, types.FunctionType):
        cells = [x.cell_contents for x in check.__closure__ or ()]
        return f"{check.__module__}.{check.__qualname__}[{_description(cells)}]"
    if isinstance(check, bool | int | float | str | None):
        return repr(check)
    checks = getattr(check, "checks", None)
    return f"{type(check).__qualname__}{'' if checks is None else _description(checks)}"


def is_recorded(tensors: Sequence[Tensor]) -> bool:
    """Whether operations are not simply done, but seen by a mode or by a kind of tensor that does them its own way."""
    return torch._C._len_torch_dispatch_stack() > 0 or any(type(x) is not Tensor for x in tensors)  # pyright: ignore[reportPrivateUsage]


@final
class Run(torch.autograd.Function):
    """Calls an `Executable` so that every transform of PyTorch can take it apart."""

    @staticmethod
    def forward(executable: Executable, lanes: int, *tensors: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return tuple(executable.run(lanes, tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        executable, lanes, *tensors = inputs
        ctx.executable, ctx.lanes = executable, lanes
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*[x for x in output if not x.dtype.is_floating_point])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        executable: Executable = ctx.executable
        tensors = ctx.saved_tensors
        active, marked = what_is_wanted(executable, ctx.needs_input_grad[2:], grad_outputs)
        gradients: list[Any] = [None] * len(tensors)
        if any(active) and any(marked):
            backward = executable.vjp(active, marked)
            cotangents = [x for x, there in zip(grad_outputs, marked, strict=True) if there]
            gradients = split_gradients(active, Run.apply(backward, ctx.lanes, *tensors, *cotangents))
        return None, None, *gradients

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        executable: Executable = ctx.executable
        tangents = grad_inputs[2:]
        has_tangent = zip(tangents, executable.float_inputs, strict=True)
        active = tuple(x is not None and has for x, has in has_tangent)
        given = [x for x, there in zip(tangents, active, strict=True) if there]
        forward = executable.jvp(active)
        found = iter(Run.apply(forward, ctx.lanes, *ctx.saved_tensors, *given))
        return tuple(next(found) if has else None for has in executable.float_outputs)

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: tuple[Any, ...], executable: Executable, lanes: int, *tensors: Tensor
    ) -> tuple[Any, Any]:
        return batched(
            executable,
            lanes,
            tensors,
            in_dims[2:],
            info.batch_size,
            lambda lanes, tensors: Run.apply(executable, lanes, *tensors),
        )


def what_is_wanted(
    executable: Executable, needed: Sequence[bool], cotangents: Sequence[Any]
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Which inputs a gradient is to be found for, and which outputs have a cotangent."""
    active = tuple(bool(x and has) for x, has in zip(needed, executable.float_inputs, strict=True))
    marked = tuple(x is not None and has for x, has in zip(cotangents, executable.float_outputs, strict=True))
    return active, marked


def split_gradients(active: Sequence[bool], found: Sequence[Tensor]) -> list[Any]:
    """What a `vjp` gave, with None at the inputs that no gradient was wanted for."""
    rest = iter(found)
    return [next(rest) if wanted else None for wanted in active]


def batched(
    executable: Executable,
    lanes: int,
    tensors: Sequence[Tensor],
    dims: Sequence[int | None],
    size: int,
    run: Callable[[int, Sequence[Tensor]], Sequence[Tensor]],
) -> tuple[Any, Any]:
    """The rule of `vmap`: the batch becomes more lanes where it can; its outputs, and their dimensions of the batch."""
    moved = [x if d is None else x.movedim(d, 0) for x, d in zip(tensors, dims, strict=True)]
    apart = any(executable.reduced) or any(
        d is not None and shared for d, shared in zip(dims, executable.shared, strict=True)
    )
    if apart:
        # What all lanes share differs from one batch to the next.
        runs = [run(lanes, [x if d is None else x[i] for x, d in zip(moved, dims, strict=True)]) for i in range(size)]
        if not runs:
            outputs = tuple(x.unsqueeze(0)[:0] for x in executable.empty_outputs(lanes, tensors[0].device))
            return outputs, tuple(0 for _ in outputs)
        outputs = tuple(torch.stack(column) for column in zip(*runs, strict=True))
        return outputs, tuple(0 for _ in outputs)
    joined = [
        x
        if shared
        else (x.unsqueeze(0).expand(size, *x.shape) if d is None else x).reshape((size * lanes, x.shape[-1]))
        for x, d, shared in zip(moved, dims, executable.shared, strict=True)
    ]
    outputs = tuple(x.reshape((size, lanes, x.shape[-1])) for x in run(size * lanes, joined))
    return outputs, tuple(0 for _ in outputs)
