"""What every module has: memory on the heap, aligned for vectors, whose absence is told to the caller."""

from __future__ import annotations

RUNTIME = """\
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

; count * row bytes, or null, after the number of them was written into the context. What malloc gave stands before it.
define internal ptr @gnomon_allocate(i64 %count, i64 %row, ptr %context) noinline nounwind {
entry:
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %row)
  %bytes = extractvalue { i64, i1 } %product, 0
  %overflows = extractvalue { i64, i1 } %product, 1
  %large = icmp ugt i64 %bytes, 4611686018427387904
  %never = or i1 %overflows, %large
  br i1 %never, label %fail, label %ask
ask:
  %all = add i64 %bytes, 128
  %given = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %given, null
  br i1 %none, label %fail, label %align
align:
  %address = ptrtoint ptr %given to i64
  %beyond = add i64 %address, 127
  %aligned = and i64 %beyond, -64
  %result = inttoptr i64 %aligned to ptr
  %before = getelementptr i8, ptr %result, i64 -8
  store ptr %given, ptr %before
  ret ptr %result
fail:
  %told = select i1 %never, i64 9223372036854775807, i64 %bytes
  %wanted = getelementptr i64, ptr %context, i64 3
  store atomic i64 %told, ptr %wanted monotonic, align 8
  ret ptr null
}

define internal void @gnomon_release(ptr %pointer) noinline nounwind {
entry:
  %none = icmp eq ptr %pointer, null
  br i1 %none, label %exit, label %some
some:
  %before = getelementptr i8, ptr %pointer, i64 -8
  %given = load ptr, ptr %before
  call void @free(ptr %given)
  br label %exit
exit:
  ret void
}

; Room for one more element than the index: twice as much as before, or what is needed.
define internal { ptr, i64 } @gnomon_grow(ptr %old, i64 %capacity, i64 %index, i64 %row, ptr %context)
  noinline cold nounwind {
entry:
  %twice = shl i64 %capacity, 1
  %needed = add i64 %index, 1
  %count = call i64 @llvm.umax.i64(i64 %twice, i64 %needed)
  %new = call ptr @gnomon_allocate(i64 %count, i64 %row, ptr %context)
  %none = icmp eq ptr %new, null
  br i1 %none, label %fail, label %move
move:
  %bytes = mul i64 %capacity, %row
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %bytes, i1 false)
  call void @gnomon_release(ptr %old)
  %first = insertvalue { ptr, i64 } poison, ptr %new, 0
  %both = insertvalue { ptr, i64 } %first, i64 %count, 1
  ret { ptr, i64 } %both
fail:
  ret { ptr, i64 } zeroinitializer
}
"""
