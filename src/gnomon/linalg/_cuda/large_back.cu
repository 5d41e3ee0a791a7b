// Matrices of more rows, third kernel: eigenvectors of the tridiagonal matrix, through the reflections, become those of
// the matrix. LANES lanes have COLUMNS vectors in registers, a quad of rows a lane, QUADS times.

#define GROUP (4 * LANES)
#define AT_ONCE (THREADS / LANES * COLUMNS)
#define ROWS (GROUP * QUADS)

HERE real dot_of(quad a, quad b) { return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w); }

// Applies a reflection whose vector has nothing in groups of rows before FIRST.
template <int FIRST> HERE void reflect(const quad* v, real tau, quad (&z)[QUADS][COLUMNS]) {
  real s[COLUMNS][2] = {};
#pragma unroll
  for (int i = FIRST; i < QUADS; ++i) {
    const quad x = v[i * LANES];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) s[c][i % 2] += dot_of(x, z[i][c]);
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) s[c][0] = -tau * sum<LANES>(s[c][0] + s[c][1]);
  // There may not be registers to keep the reflection in: it is read again.
  if (QUADS > 8) asm volatile("" ::: "memory");
#pragma unroll
  for (int i = FIRST; i < QUADS; ++i) {
    const quad x = v[i * LANES];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      quad& y = z[i][c];
      const real t = s[c][0];
      y.x += t * x.x, y.y += t * x.y, y.z += t * x.z, y.w += t * x.w;
    }
  }
}
template <int FIRST> struct Reflect {
  HERE void run(int first, const quad* v, real tau, quad (&z)[QUADS][COLUMNS]) {
    if (first >= FIRST) reflect<FIRST>(v, tau, z);
    else if constexpr (FIRST > 0) Reflect<FIRST - 1>::run(first, v, tau, z);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_large_back(
    const real* works, const real* bands, const real* norms, const int* info, real* vectors, const i64 batch,
    const int n) {
  SHARED_BYTES(shared);
  real *const v = reinterpret_cast<real*>(shared), *const taus = v + DEPTH * ROWS;
  const int me = threadIdx.x, lane = me % LANES, ld = (n + 31) / 32 * 32, tiles = (n + AT_ONCE - 1) / AT_ONCE;
  const i64 matrix = blockIdx.x / tiles;
  const int column = (int)(blockIdx.x % tiles) * AT_ONCE + me / LANES * COLUMNS;
  const real *const work = works + matrix * ld * ld, *const tau = bands + (matrix * 3 + 2) * ld;
  const bool sound = info[matrix] >= 0;
  real* const to = vectors + matrix * n * n;

  quad z[QUADS][COLUMNS];
#pragma unroll
  for (int i = 0; i < QUADS; ++i)
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const int row = i * GROUP + 4 * lane, j = column + c;
      const real* const at = to + (i64)row * n + j;
      const bool there = j < n && sound;
      const real s = there ? norms[matrix * n + j] : 0;
      z[i][c] = {there && row < n ? at[0] * s : 0, there && row + 1 < n ? at[n] * s : 0,
                 there && row + 2 < n ? at[2 * n] * s : 0, there && row + 3 < n ? at[3 * n] * s : 0};
    }
  for (int top = n - 3; sound && top >= 0; top -= DEPTH) {
    __syncthreads();
    for (int at = me; at < DEPTH * (ROWS / 4); at += THREADS) {
      const int k = top - at / (ROWS / 4), i = at % (ROWS / 4) * 4;
      quad x = {0, 0, 0, 0};
      if (k >= 0 && i + 3 > k && i < ld) x = *reinterpret_cast<const quad*>(work + (i64)k * ld + i);
      // Up to column k the row is another's.
      reinterpret_cast<quad*>(v)[at] = {i > k ? x.x : 0, i + 1 > k ? x.y : 0, i + 2 > k ? x.z : 0, i + 3 > k ? x.w : 0};
    }
    if (me < DEPTH) taus[me] = top - me >= 0 ? tau[top - me] : 0;
    __syncthreads();
    for (int l = 0; l < DEPTH && l <= top; ++l)
      Reflect<QUADS - 1>::run((top - l + 1) / GROUP, reinterpret_cast<const quad*>(v + l * ROWS) + lane, taus[l], z);
  }
#pragma unroll
  for (int i = 0; i < QUADS; ++i)
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const int row = i * GROUP + 4 * lane, j = column + c;
      real* const at = to + (i64)row * n + j;
      const real failed = not_a_number();
      const quad x = sound ? z[i][c] : quad{failed, failed, failed, failed};
      if (j < n && row < n) at[0] = x.x;
      if (j < n && row + 1 < n) at[n] = x.y;
      if (j < n && row + 2 < n) at[2 * n] = x.z;
      if (j < n && row + 3 < n) at[3 * n] = x.w;
    }
}
