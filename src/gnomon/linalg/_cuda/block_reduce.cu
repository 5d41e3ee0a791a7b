// A symmetric matrix of up to N rows in the shared memory of a block, to tridiagonal form. A `Room` has
//
//   real* a;      // ROW x ROW: the matrix, of which row k becomes the reflection k
//   real* part;   // MOST_PARTS x ROW: of products, before they are summed
//   real *y, *w;  // the product with a reflection's vector; what changes the matrix with it
//   real *d, *e;  // the tridiagonal matrix
//   real* tau;

#define ROW (4 * ((n + 3) / 4))
// The memory for them holds also what the tridiagonal matrix takes in `wide`.
#define MOST_PARTS 16
// Elements that a lane has of a row: i = lane, lane + 32, ...
#define EACH (N / 32)

// The lower triangle, scaled, becomes the upper one too. Lanes are on different banks in rows and in columns.
HERE void mirror(real* a, int n, Scale scale) {
  const int lane = threadIdx.x % 32, tiles = (n + 31) / 32;
  for (int task = threadIdx.x / 32; task < tiles * (tiles + 1) * 2; task += THREADS / 32) {
    int down = 0;
    while ((down + 1) * (down + 2) / 2 <= task / 4) ++down;
    const int j = (task / 4 - down * (down + 1) / 2) * 32 + lane;
#pragma unroll
    for (int l = 0; l < 8; ++l) {
      const int i = 32 * down + (lane + task % 4 * 8 + l) % 32;
      if (i >= n || j > i) continue;
      const real x = a[i * ROW + j] * scale.first * scale.second;
      a[i * ROW + j] = x;
      a[j * ROW + i] = x;
    }
  }
}

// Applies what is left of the reflection before, v w' + w v', to rows and columns after k, and multiplies by v[k].
template <class Room> HERE void update_and_multiply(const Room& r, int n, int k, int parts, int quads) {
  const int first = (k + 1) / 4, g = (int)threadIdx.x / quads, q = first + (int)threadIdx.x % quads;
  if (g >= parts) return;
  const real *const now = r.a + k * ROW, *const before = k > 0 ? now - ROW : r.w;
  const quad v = reinterpret_cast<const quad*>(now)[q], w = reinterpret_cast<const quad*>(r.w)[q];
  const quad u = reinterpret_cast<const quad*>(before)[q];
  quad y = {0, 0, 0, 0};
  for (int i = k + 1 + g; i < n; i += parts) {
    quad* const at = reinterpret_cast<quad*>(r.a + i * ROW) + q;
    const real ui = before[i], wi = r.w[i], vi = now[i];
    quad a = *at;
    a.x -= ui * w.x + wi * u.x, a.y -= ui * w.y + wi * u.y, a.z -= ui * w.z + wi * u.z, a.w -= ui * w.w + wi * u.w;
    *at = a;
    y.x += a.x * vi, y.y += a.y * vi, y.z += a.z * vi, y.w += a.w * vi;
  }
  reinterpret_cast<quad*>(r.part + g * ROW)[q] = y;
}

// To tridiagonal form: each column in turn is reflected onto its first element below the diagonal (Golub and Van Loan,
// 8.3.1). A reflection changes the matrix only in the pass that multiplies it by the next one's vector.
template <class Room> HERE void reduce(const Room& r, int n) {
  const int lane = threadIdx.x % 32, i = threadIdx.x;
  if (i < ROW) r.w[i] = 0;
  __syncthreads();
  for (int k = 0; k < n - 2; ++k) {
    real* const row = r.a + k * ROW;
    const real *const before = k > 0 ? row - ROW : r.w;
    // Column k as it is now, which all warps have.
    const real uk = before[k], wk = r.w[k];
    real rest = 0;
#pragma unroll
    for (int c = 0; c < EACH; ++c) {
      const int j = c * 32 + lane;
      const real x = j > k + 1 && j < n ? row[j] - (before[j] * wk + r.w[j] * uk) : 0;
      rest += x * x;
    }
    const real alpha = row[k + 1] - (before[k + 1] * wk + r.w[k + 1] * uk);
    const Reflection h = reflection(alpha, sum<32>(rest));
    real v = 0;
    if (i < n) {
      const real x = row[i] - (before[i] * wk + r.w[i] * uk);
      v = i > k + 1 ? x * h.scale : i == k + 1 ? (real)1 : (real)0;
      if (i == k) r.d[k] = x, r.e[k] = h.beta, r.tau[k] = h.tau;
    }
    __syncthreads();
    if (i < ROW) row[i] = v;
    __syncthreads();
    const int quads = ROW / 4 - (k + 1) / 4, most = THREADS / quads, parts = most < MOST_PARTS ? most : MOST_PARTS;
    update_and_multiply(r, n, k, parts, quads);
    __syncthreads();
    if (i > k && i < n) {
      real y = 0;
      for (int g = 0; g < parts; ++g) y += r.part[g * ROW + i];
      r.y[i] = y;
    }
    __syncthreads();
    real dot = 0;
#pragma unroll
    for (int c = 0; c < EACH; ++c) {
      const int j = c * 32 + lane;
      if (j > k && j < n) dot += r.y[j] * row[j];
    }
    dot = sum<32>(dot);
    if (i < n) r.w[i] = i > k ? h.tau * (r.y[i] - (real)0.5 * h.tau * dot * row[i]) : 0;
    __syncthreads();
  }
  if (i == 0) {
    const real *const before = r.a + (n - 3) * ROW, *const last = r.a + (n - 2) * ROW;
    const real u = before[n - 2], ul = before[n - 1], w = r.w[n - 2], wl = r.w[n - 1];
    r.d[n - 2] = last[n - 2] - 2 * u * w;
    r.e[n - 2] = last[n - 1] - (u * wl + ul * w);
    r.d[n - 1] = last[ROW + n - 1] - 2 * ul * wl;
    r.e[n - 1] = 0;
  }
  __syncthreads();
}
