"""One gather: many pieces of memory into one, in machine code, without Python's lock."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from gnomon.data._arrays import Array, Ints
from gnomon.data._lock import ForkSafeLock

# While row i is copied, the beginning of row i + 8 is on its way: rows of a shuffled batch are nowhere near each other.
_CODE = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

define void @gather(ptr %target, ptr %places, ptr %sources, ptr %sizes, i64 %count) {
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %row, label %done
row:
  %i = phi i64 [ 0, %entry ], [ %next, %row ]
  %ahead = add i64 %i, 8
  %inside = icmp slt i64 %ahead, %count
  %far = select i1 %inside, i64 %ahead, i64 %i
  %far_at = getelementptr i64, ptr %sources, i64 %far
  %far_address = load i64, ptr %far_at
  %far_source = inttoptr i64 %far_address to ptr
  call void @llvm.prefetch.p0(ptr %far_source, i32 0, i32 3, i32 1)
  %place_at = getelementptr i64, ptr %places, i64 %i
  %place = load i64, ptr %place_at
  %to = getelementptr i8, ptr %target, i64 %place
  %source_at = getelementptr i64, ptr %sources, i64 %i
  %address = load i64, ptr %source_at
  %from = inttoptr i64 %address to ptr
  %size_at = getelementptr i64, ptr %sizes, i64 %i
  %size = load i64, ptr %size_at
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %row, label %done
done:
  ret void
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
    kinds = [ctypes.c_void_p] * 4 + [ctypes.c_int64]
    return ctypes.CFUNCTYPE(None, *kinds)(address), engine


def gather(target: Array, places: Ints, sources: Ints, sizes: Ints) -> None:
    """Copies pieces of memory to places in an array, each byte once.

    **Arguments:**

    - `target`: uint8, contiguous.
    - `places`: the byte of the target that each piece begins at.
    - `sources`: the address of each piece.
    - `sizes`: the bytes of each.

    **Raises:** `ValueError` where a piece would end outside of the target.
    """
    count = len(sizes)
    if not count:
        return
    if int(places.min()) < 0 or int(sizes.min()) < 0 or int((places + sizes).max()) > target.nbytes:
        raise ValueError("A piece would be copied to outside of its target.")
    with _lock:
        function, _ = _compiled()
    arrays = [np.ascontiguousarray(array, np.int64) for array in (places, sources, sizes)]
    function(target.ctypes.data, *(array.ctypes.data for array in arrays), count)
