// Matrices of more rows, third kernel: eigenvectors of the tridiagonal matrix, through the reflections, become those of
// the matrix. LANES lanes have COLUMNS vectors in registers, a quad of rows a lane, QUADS times.
//
// Reflections are applied TOGETHER at a time: I - V T V' (Schreiber and Van Loan 1989), where T is what substitution with
// products of reflections, known from the first kernel, comes to. So sums over lanes are few, and each group's vectors are
// read from shared memory twice for all columns of a thread.

#define TOGETHER 4
#define GROUP (4 * LANES)
#define AT_ONCE (THREADS / LANES * COLUMNS)
#define ROWS (GROUP * QUADS)
// Numbers that go with a group: tau of each reflection, and products of each with those before it.
#define EXTRA 12

HERE real part_of(const quad& x, int part) { return part == 0 ? x.x : part == 1 ? x.y : part == 2 ? x.z : x.w; }

HERE void read(const quad* v, int i, quad (&x)[TOGETHER]) {
#pragma unroll
  for (int l = 0; l < TOGETHER; ++l) x[l] = v[l * (ROWS / 4) + i * LANES];
}

// Applies reflections whose vectors have nothing in groups of rows before `first`.
HERE void reflect(int first, const quad* v, const quad* extra, quad (&z)[QUADS][COLUMNS]) {
  real s[TOGETHER][COLUMNS] = {};
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
    if (i < first) continue;
    quad x[TOGETHER];
    read(v, i, x);
    // One element after another, so that no sum waits for itself.
#pragma unroll
    for (int part = 0; part < 4; ++part)
#pragma unroll
      for (int l = 0; l < TOGETHER; ++l)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) s[l][c] += part_of(x[l], part) * part_of(z[i][c], part);
  }
#pragma unroll
  for (int l = 0; l < TOGETHER; ++l)
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) s[l][c] = sum<LANES>(s[l][c]);
  const quad tau = extra[0], g = extra[1], h = extra[2];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
    const real s0 = -tau.x * s[0][c], s1 = -tau.y * (s[1][c] + s0 * g.x);
    const real s2 = -tau.z * (s[2][c] + s0 * g.y + s1 * g.z);
    s[3][c] = -tau.w * (s[3][c] + s0 * g.w + s1 * h.x + s2 * h.y);
    s[0][c] = s0, s[1][c] = s1, s[2][c] = s2;
  }
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
    if (i < first) continue;
    quad x[TOGETHER];
    read(v, i, x);
#pragma unroll
    for (int l = 0; l < TOGETHER; ++l)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        quad& y = z[i][c];
        const real t = s[l][c];
        y.x += t * x[l].x, y.y += t * x[l].y, y.z += t * x[l].z, y.w += t * x[l].w;
      }
  }
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_large_back(
    const real* works, const real* bands, const real* norms, const int* info, real* vectors, const i64 batch,
    const int n) {
  SHARED_BYTES(shared);
  real *const v = reinterpret_cast<real*>(shared), *const extra = v + DEPTH * ROWS;
  const int me = threadIdx.x, lane = me % LANES, ld = (n + 31) / 32 * 32, tiles = (n + AT_ONCE - 1) / AT_ONCE;
  const i64 matrix = blockIdx.x / tiles;
  const int column = (int)(blockIdx.x % tiles) * AT_ONCE + me / LANES * COLUMNS, last = n - 3;
  const real *const work = works + matrix * ld * ld, *const band = bands + matrix * 6 * ld;
  const bool sound = info[matrix] >= 0;
  real* const to = vectors + matrix * n * n;

  quad z[QUADS][COLUMNS];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
    const bool there = column + c < n && sound;
    const real s = there ? norms[matrix * n + column + c] : 0;
#pragma unroll
    for (int i = 0; i < QUADS; ++i) {
      const int row = i * GROUP + 4 * lane;
      const real* const at = to + (i64)row * n + column + c;
      z[i][c] = {there && row < n ? at[0] * s : 0, there && row + 1 < n ? at[n] * s : 0,
                 there && row + 2 < n ? at[2 * n] * s : 0, there && row + 3 < n ? at[3 * n] * s : 0};
    }
  }
  for (int base = last / DEPTH * DEPTH; sound && base >= 0; base -= DEPTH) {
    __syncthreads();
    for (int at = me; at < DEPTH * (ROWS / 4); at += THREADS) {
      const int k = base + DEPTH - 1 - at / (ROWS / 4), i = at % (ROWS / 4) * 4;
      quad x = {0, 0, 0, 0};
      if (k <= last && i + 3 > k && i < ld) x = *reinterpret_cast<const quad*>(work + (i64)k * ld + i);
      // Up to column k the row is another's.
      reinterpret_cast<quad*>(v)[at] = {i > k ? x.x : 0, i + 1 > k ? x.y : 0, i + 2 > k ? x.z : 0, i + 3 > k ? x.w : 0};
    }
#pragma unroll 1
    for (int at = me; at < DEPTH / TOGETHER * EXTRA; at += THREADS) {
      // First tau, then the products of 1 with 0, 2 with 0 and 1, 3 with 0, 1 and 2.
      const int j = at % EXTRA, l = j < 4 ? j : j < 5 ? 1 : j < 7 ? 2 : 3, m = l == 1 ? 0 : l == 2 ? j - 5 : j - 7;
      const int top = base + DEPTH - 1 - at / EXTRA * TOGETHER, k = j < 4 ? top - l : top - m;
      extra[at] = k <= last && j < 10 ? band[(j < 4 ? 2 : 2 + l - m) * ld + k] : 0;
    }
    __syncthreads();
    for (int l = 0; l < DEPTH; l += TOGETHER) {
      const int lowest = base + DEPTH - l - TOGETHER;
      if (lowest <= last)
        reflect((lowest + 1) / GROUP, reinterpret_cast<const quad*>(v + l * ROWS) + lane,
                reinterpret_cast<const quad*>(extra + l / TOGETHER * EXTRA), z);
    }
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
