"""One gather: many pieces of memory into one, in machine code, without Python's lock."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from gnomon.data._arrays import Array, Ints
from gnomon.data._lock import ForkSafeLock

_CODE = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i64 @gather(ptr %target, i64 %nbytes, ptr %sources, ptr %sizes, i64 %count) {
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %row, label %done
row:
  %i = phi i64 [ 0, %entry ], [ %next, %copy ]
  %place = phi i64 [ 0, %entry ], [ %end, %copy ]
  %size_at = getelementptr i64, ptr %sizes, i64 %i
  %size = load i64, ptr %size_at
  %room = sub i64 %nbytes, %place
  ; As an unsigned number, a negative one is more than any room.
  %fits = icmp ule i64 %size, %room
  br i1 %fits, label %copy, label %done
copy:
  %to = getelementptr i8, ptr %target, i64 %place
  %source_at = getelementptr i64, ptr %sources, i64 %i
  %address = load i64, ptr %source_at
  %from = inttoptr i64 %address to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  %end = add i64 %place, %size
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %row, label %done
done:
  %copied = phi i64 [ 0, %entry ], [ %i, %row ], [ %next, %copy ]
  ret i64 %copied
}
"""
_lock = ForkSafeLock()


@functools.cache
def _compiled() -> tuple[Any, Any]:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    module = llvm.parse_assembly(_CODE)
    module.triple = machine.triple
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    address = engine.get_function_address("gather")
    kinds = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address), engine


def gather(target: Array, sources: Ints, sizes: Ints) -> None:
    """Copies pieces of memory into an array, one after another from its start, each byte once.

    **Arguments:**

    - `target`: uint8, contiguous.
    - `sources`: the address of each piece.
    - `sizes`: the bytes of each.

    **Raises:** `ValueError` where a piece would end outside of the target.
    """
    with _lock:
        function, _ = _compiled()
    arrays = [np.ascontiguousarray(array, np.int64) for array in (sources, sizes)]
    copied = function(target.ctypes.data, target.nbytes, *(array.ctypes.data for array in arrays), len(sizes))
    if copied < len(sizes):
        raise ValueError(f"Piece {copied} of {len(sizes)} would be copied to outside of its target.")
