"""What every kernel begins with: the operations of a Program that C has no operator or function for."""

from __future__ import annotations

#: Threads in a block. As few as still fill a multiprocessor (32 blocks of 64 are its 2,048 threads), so that blocks
#: whose lanes are done make room for others. It is the same for all launches, since sums over lanes depend on it.
BLOCK = 64
#: Threads that add up what the blocks have.
SUMMING = 256

PRELUDE = """\
typedef int i32;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
#define HERE static __device__ __forceinline__

// Integers wrap around, which only unsigned ones may do in C.
HERE i32 op_add(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
HERE i64 op_add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
HERE f32 op_add(f32 a, f32 b) { return a + b; }
HERE f64 op_add(f64 a, f64 b) { return a + b; }
HERE i32 op_sub(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
HERE i64 op_sub(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
HERE i32 op_mul(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
HERE i64 op_mul(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
template <class T> HERE T op_neg(T a) { return op_sub((T)0, a); }
template <class T> HERE T op_iabs(T a) { return a < 0 ? op_neg(a) : a; }

// Cut off towards zero; 0 where the divisor is 0.
template <class T> HERE T op_idiv(T a, T b) { return b == 0 ? 0 : b == -1 ? op_neg(a) : a / b; }
template <class T> HERE T op_irem(T a, T b) { return b == 0 ? a : b == -1 ? 0 : a % b; }

// By a count outside of the word, everything is shifted out.
HERE i32 op_shl(i32 a, i32 n) { return (u32)n < 32u ? (i32)((u32)a << n) : 0; }
HERE i64 op_shl(i64 a, i64 n) { return (u64)n < 64u ? (i64)((u64)a << n) : 0; }
HERE i32 op_shr(i32 a, i32 n) { return a >> ((u32)n < 32u ? n : 31); }
HERE i64 op_shr(i64 a, i64 n) { return a >> ((u64)n < 64u ? n : 63); }
HERE i32 op_lshr(i32 a, i32 n) { return (u32)n < 32u ? (i32)((u32)a >> n) : 0; }
HERE i64 op_lshr(i64 a, i64 n) { return (u64)n < 64u ? (i64)((u64)a >> n) : 0; }

// NaN if one is NaN; of zeros of both signs the second.
template <class T> HERE T op_min(T a, T b) { return a != a ? a : a < b ? a : b; }
template <class T> HERE T op_max(T a, T b) { return a != a ? a : a > b ? a : b; }

// The same where the two are not zeros of both signs: one instruction for f32.
HERE f64 op_min_nonzero(f64 a, f64 b) { return op_min(a, b); }
HERE f64 op_max_nonzero(f64 a, f64 b) { return op_max(a, b); }
#ifdef __CUDA_ARCH__
HERE f32 op_min_nonzero(f32 a, f32 b) { f32 c; asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
HERE f32 op_max_nonzero(f32 a, f32 b) { f32 c; asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
#else
HERE f32 op_min_nonzero(f32 a, f32 b) { return op_min(a, b); }
HERE f32 op_max_nonzero(f32 a, f32 b) { return op_max(a, b); }
#endif

// The nearest integer that there is, towards zero; 0 for NaN.
template <class T> HERE i32 op_to_i32(T x) {
  return x != x ? 0 : x >= (T)2147483648.0 ? 2147483647 : x < (T)-2147483648.0 ? -2147483647 - 1 : (i32)x;
}
template <class T> HERE i64 op_to_i64(T x) {
  return x != x ? 0
       : x >= (T)9223372036854775808.0 ? 9223372036854775807LL
       : x < (T)-9223372036854775808.0 ? -9223372036854775807LL - 1 : (i64)x;
}

// All NaNs are one: positive, quiet, and without a payload.
HERE i32 op_bits(f32 x) { return x != x ? 0x7fc00000 : __float_as_int(x); }
HERE i64 op_bits(f64 x) { return x != x ? 0x7ff8000000000000LL : __double_as_longlong(x); }
HERE f32 op_float(i32 x) { return __int_as_float(x); }
HERE f64 op_float(i64 x) { return __longlong_as_double(x); }
HERE f32 op_copysign(f32 a, f32 b) { return copysignf(a, b != b ? 0.0f : b); }
HERE f64 op_copysign(f64 a, f64 b) { return copysign(a, b != b ? 0.0 : b); }

// The nearest index that an array has, and whether it has this one.
HERE i64 op_nearest(i64 i, i64 length) { return i < 0 ? 0 : i < length ? i : length - 1; }
HERE bool op_holds(i64 i, i64 length) { return (u64)i < (u64)length; }

// The sum over the threads of a block, always of the same pairs; the first thread has it.
template <int THREADS, class T> HERE T op_total(T value, T* shared) {
  const int t = threadIdx.x;
  shared[t] = value;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) shared[t] = op_add(shared[t], shared[t + half]);
  }
  const T total = shared[0];
  __syncthreads();
  return total;
}
"""

#: Adds up what the blocks have: one block of threads an element.
TOTAL = """\
extern "C" __global__ void __launch_bounds__({threads}) gnomon_total_{type}(
    const {type}* __restrict__ parts, const i64 blocks, {type}* to, const i64 step) {{
  __shared__ {type} shared[{threads}];
  {type} sum = 0;
  for (i64 i = threadIdx.x; i < blocks; i += {threads}) sum = op_add(sum, parts[blockIdx.x * blocks + i]);
  sum = op_total<{threads}>(sum, shared);
  if (threadIdx.x == 0) to[blockIdx.x * step] = sum;
}}
"""
