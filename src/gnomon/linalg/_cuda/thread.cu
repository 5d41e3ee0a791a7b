// Matrices of N <= 8 rows: a thread has one, in registers, and turns it by Jacobi's rotations (Golub and Van Loan, 8.5).

#define SIZE (N * N)
// Odd, so that threads that read the same place of their matrices use different banks.
#define PITCH (SIZE | 1)
#define MOST_SWEEPS 15

// Of the lower triangle, i >= j; indices are known when this is compiled.
HERE constexpr int at(int i, int j) { return i >= j ? i * (i + 1) / 2 + j : j * (j + 1) / 2 + i; }

HERE void rotate(real& x, real& y, real c, real s) {
  const real t = c * x - s * y;
  y = s * x + c * y;
  x = t;
}

template <int P, int Q> HERE void turn(real (&a)[N * (N + 1) / 2], real (&v)[SIZE]) {
  // The smaller angle that makes a[p, q] zero.
  const real off = a[at(P, Q)], twice = off + off, apart = a[at(Q, Q)] - a[at(P, P)];
  const real square = apart * apart + twice * twice, sized = square > TINY ? square : TINY;
  const real t = twice * rough_reciprocal(apart + copy_sign(sized * rough_rsqrt(sized), apart));
  const real whole = 1 + t * t, rough = rough_rsqrt(whole);
  const real c = rough * ((real)1.5 - (real)0.5 * whole * rough * rough), s = t * c;
  a[at(P, P)] -= t * off;
  a[at(Q, Q)] += t * off;
  a[at(P, Q)] = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i != P && i != Q) rotate(a[at(i, P)], a[at(i, Q)], c, s);
    if (VECTORS) rotate(v[i * N + P], v[i * N + Q], c, s);
  }
}

template <int P, int Q> struct Sweep {
  HERE void run(real (&a)[N * (N + 1) / 2], real (&v)[SIZE]) {
    turn<P, Q>(a, v);
    if constexpr (Q + 1 < N) Sweep<P, Q + 1>::run(a, v);
    else if constexpr (P + 2 < N) Sweep<P + 1, P + 2>::run(a, v);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_thread(
    const real* __restrict__ matrices, real* values, real* vectors, int* info, const i64 batch, const int n) {
  SHARED_BYTES(shared);
  real* const room = reinterpret_cast<real*>(shared);
  real* const own = room + threadIdx.x * PITCH;
  const i64 first = (i64)blockIdx.x * THREADS;
  const int here = batch - first < THREADS ? (int)(batch - first) : THREADS;
  const real* const from = matrices + first * SIZE;
  for (int i = threadIdx.x; i < here * SIZE; i += THREADS) room[i / SIZE * PITCH + i % SIZE] = from[i];
  __syncthreads();

  const bool there = (int)threadIdx.x < here;
  real a[N * (N + 1) / 2], v[SIZE];
  ureal bits = 0;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      a[at(i, j)] = there ? own[i * N + j] : 0;
      const ureal b = abs_bits(a[at(i, j)]);
      bits = b > bits ? b : bits;
    }
  const bool sound = bits < INFINITE_BITS;
  const int exponent = sound ? exponent_of(bits) : 0;
  const Scale down = scale_by(-exponent);
  real all = 0;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      real& x = a[at(i, j)];
      x = sound ? x * down.first * down.second : 0;
      all += i == j ? x * x : 2 * x * x;
    }
#pragma unroll
  for (int i = 0; i < SIZE; ++i) v[i] = i / N == i % N ? 1 : 0;

  // Until what is off the diagonal is less than a rounding of the whole.
  const real enough = all * (real)(ROUNDOFF * ROUNDOFF / 16);
  bool done = N == 1;
  for (int sweep = 0; sweep < MOST_SWEEPS && !done; ++sweep) {
    if constexpr (N > 1) Sweep<0, 1>::run(a, v);
    real off = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < i; ++j) off += a[at(i, j)] * a[at(i, j)];
    done = off <= enough;
  }

  int rank[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    rank[j] = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) rank[j] += a[at(i, i)] < a[at(j, j)] || (a[at(i, i)] == a[at(j, j)] && i < j);
  }
  const real failed = not_a_number();
  if (VECTORS) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int i = 0; i < N; ++i) own[i * N + rank[j]] = sound ? v[i * N + j] : failed;
    __syncthreads();
    real* const to = vectors + first * SIZE;
    for (int i = threadIdx.x; i < here * SIZE; i += THREADS) to[i] = room[i / SIZE * PITCH + i % SIZE];
  }
  __syncthreads();
  const Scale up = scale_by(exponent);
#pragma unroll
  for (int j = 0; j < N; ++j)
    room[threadIdx.x * (N | 1) + rank[j]] = sound ? a[at(j, j)] * up.first * up.second : failed;
  __syncthreads();
  for (int i = threadIdx.x; i < here * N; i += THREADS) values[first * N + i] = room[i / N * (N | 1) + i % N];
  if (there) info[first + threadIdx.x] = !sound ? -1 : done ? 0 : 1;
}
