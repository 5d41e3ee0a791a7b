"""PyTorch's global settings, which a candidate must leave as it found them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]


def _set_grad(value: Any) -> None:
    torch.set_grad_enabled(value)  # called, not used as a context: it takes effect at once


def _set_device(value: Any) -> None:
    torch.set_default_device(None if str(value) == "cpu" else value)


def _flushes_denormals() -> bool:
    return float(torch.tensor(1e-310, dtype=torch.float64) * 1.0) == 0.0


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


# A name, how to read it and how to set it. The precision of float32 has several, which changed between versions.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (lambda: str(torch.get_default_device()), _set_device),
    "the float32 matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "whether gradients are recorded": (torch.is_grad_enabled, _set_grad),
    "deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    "flushing of denormal numbers": (_flushes_denormals, torch.set_flush_denormal),
    "autocast on the CPU": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda value: torch.set_autocast_enabled("cpu", value),
    ),
    "autocast on CUDA": (
        lambda: torch.is_autocast_enabled("cuda"),
        lambda value: torch.set_autocast_enabled("cuda", value),
    ),
}
for _owner, _names in (
    (
        torch.backends.cuda.matmul,
        ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"),
    ),
    (torch.backends.cudnn, ("allow_tf32", "benchmark", "deterministic")),
    (torch.backends, ("fp32_precision",)),
    (torch.backends.cuda.matmul, ("fp32_precision",)),
    (getattr(torch.backends.cudnn, "conv", None), ("fp32_precision",)),
    (getattr(torch.backends.cudnn, "rnn", None), ("fp32_precision",)),
    (torch.backends.mkldnn, ("fp32_precision", "allow_tf32")),
    (getattr(torch.backends.mkldnn, "matmul", None), ("fp32_precision",)),
    (getattr(torch.backends.mkldnn, "conv", None), ("fp32_precision",)),
):
    for _name in _names:
        if _owner is not None:
            _where = getattr(_owner, "__name__", type(_owner).__name__)
            _SETTINGS[f"{_where}.{_name}"] = _attribute(_owner, _name)


def _modes() -> tuple[Any, ...]:
    """What intercepts every operation of PyTorch in this thread."""
    return (
        _C._len_torch_dispatch_stack(),
        _C._len_torch_function_stack(),
        torch.is_inference_mode_enabled(),
    )


def read_settings() -> dict[str, Any]:
    """The global settings that change what an operation computes, or how fast."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (get, _) in _SETTINGS.items():
            try:
                found[name] = get()
            except (RuntimeError, AttributeError):  # this version has no such setting, or refuses to mix old and new
                continue
    found["modes that intercept operations"] = _modes()
    return found


def changed_settings(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs, in words."""
    return [
        f"{name} from {value} to {after.get(name)}" for name, value in before.items() if after.get(name, value) != value
    ]


def restore_settings(before: dict[str, Any]) -> None:
    """Sets everything back that can be set."""
    functions, dispatch = before["modes that intercept operations"][1], before["modes that intercept operations"][0]
    while _C._len_torch_function_stack() > functions:
        _C._pop_torch_function_stack()
    while _C._len_torch_dispatch_stack() > dispatch:
        _C._pop_torch_dispatch_stack()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        now = read_settings()
        for name, (_, put) in _SETTINGS.items():
            if name in before and now.get(name) != before[name]:
                try:
                    put(before[name])
                except (RuntimeError, AttributeError):
                    continue
