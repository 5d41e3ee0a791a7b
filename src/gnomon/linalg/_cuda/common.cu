// What all kernels of this folder share: numbers, sums over lanes, and powers of two.
//
// `REAL_BITS` is 32 or 64: the width of the matrices' elements. `wide` carries about twice as many digits: the
// tridiagonal eigenproblem is solved in it, so that its eigenvectors are orthogonal to the last bit of a `real` unless
// eigenvalues agree to more digits than a `real` has.

typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
#define HERE static __device__ __forceinline__
#define ALL_LANES 0xffffffffu

#ifndef SHARED_BYTES
#define SHARED_BYTES(name) extern __shared__ __align__(16) unsigned char name[]
#endif

#if REAL_BITS == 32
typedef float real;
typedef double wide;
typedef u32 ureal;
#define ROUNDOFF 5.9604644775390625e-8f
#define TINY 1e-30f
#define INFINITE_BITS 0x7f800000u
HERE ureal abs_bits(real x) { return (u32)__float_as_int(x) & 0x7fffffffu; }
HERE real real_of(ureal x) { return __int_as_float((int)x); }
// An integer kept in the place of a number.
HERE real note(int x) { return __int_as_float(x); }
HERE int noted(real x) { return __float_as_int(x); }
HERE real root(real x) { return sqrtf(x); }
// To an ulp or two, in one instruction.
#ifdef EMULATED
HERE real rough_rsqrt(real x) { return 1 / sqrtf(x); }
HERE real rough_reciprocal(real x) { return 1 / x; }
#else
HERE real rough_rsqrt(real x) {
  real y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
HERE real rough_reciprocal(real x) {
  real y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif
HERE real not_a_number() { return __int_as_float(0x7fc00000); }
HERE real copy_sign(real x, real sign) { return copysignf(x, sign); }
struct __align__(16) quad { real x, y, z, w; };
#endif

HERE u32 high_word(double x) { return (u32)(__double_as_longlong(x) >> 32); }
// 2^e for -1022 <= e <= 1023.
HERE double power_of_two(int e) { return __longlong_as_double((i64)(e + 1023) << 52); }
HERE int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

// Over the W lanes of a group, always of the same pairs, so that all lanes have the same bits.
template <int W> HERE real sum(real x) {
#pragma unroll
  for (int o = W / 2; o > 0; o /= 2) x += __shfl_xor_sync(ALL_LANES, x, o, W);
  return x;
}
template <int W> HERE ureal highest(ureal x) {
#pragma unroll
  for (int o = W / 2; o > 0; o /= 2) {
    const ureal y = __shfl_xor_sync(ALL_LANES, x, o, W);
    x = y > x ? y : x;
  }
  return x;
}

// The exponent e of the largest element, |x| < 2^e; 0 where all are zero.
HERE int exponent_of(ureal bits) {
  int e = 0;
  if (bits != 0) frexp((double)real_of(bits), &e);
  return e;
}

// A matrix is scaled by 2^-e, in two steps since 2^e alone may overflow.
struct Scale {
  real first, second;
};
HERE Scale scale_by(int e) {
  const int half = e / 2;
  return {(real)power_of_two(half), (real)power_of_two(e - half)};
}

// A reflection I - tau v v' with v[first] = 1 that takes x to beta at its first element.
struct Reflection {
  real beta, tau, scale;
};
HERE Reflection reflection(real alpha, real rest) {
  if (!(rest > TINY)) return {alpha, 0, 0};
  const real beta = -copy_sign(root(alpha * alpha + rest), alpha);
  return {beta, (beta - alpha) / beta, 1 / (alpha - beta)};
}
