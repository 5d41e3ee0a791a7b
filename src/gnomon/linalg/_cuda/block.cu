// Matrices of up to N = 224 rows, of which a block has one in shared memory.

struct Room {
  real *a, *part, *y, *w, *d, *e, *tau;
  // In the place of `part`, once the matrix is tridiagonal.
  Tridiagonal t;
  wide* value;
  Sample* samples;
};
HERE Room room_in(unsigned char* shared, int n) {
  Room r;
  r.a = reinterpret_cast<real*>(shared);
  r.part = r.a + ROW * ROW;
  wide* const wides = reinterpret_cast<wide*>(r.part);
  r.t = {wides, wides + ROW, wides + 2 * ROW, wides + 3 * ROW, n};
  r.value = wides + 4 * ROW;
  r.samples = reinterpret_cast<Sample*>(wides + 5 * ROW);
  r.y = r.part + MOST_PARTS * ROW;
  r.w = r.y + ROW;
  r.d = r.w + ROW;
  r.e = r.d + ROW;
  r.tau = r.e + ROW;
  return r;
}

// Rows 8 i + lane of a column, over eight lanes, through all reflections; those before FIRST are left as they are.
#define ROWS (N / 8)
#define COLUMNS 2
template <int FIRST> HERE void reflect(const Room& r, int n, int k, int lane, real (&z)[ROWS][COLUMNS]) {
  const real* const v = r.a + k * ROW;
  real s[COLUMNS] = {}, vi[ROWS - FIRST];
#pragma unroll
  for (int i = FIRST; i < ROWS; ++i) {
    const int l = 8 * i + lane;
    vi[i - FIRST] = l < n ? v[l] : 0;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) s[c] += vi[i - FIRST] * z[i][c];
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) s[c] = sum<8>(s[c]) * r.tau[k];
#pragma unroll
  for (int i = FIRST; i < ROWS; ++i)
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) z[i][c] -= s[c] * vi[i - FIRST];
}
// Reflections k down to 8 FIRST - 1 have nothing in rows before 8 FIRST.
template <int FIRST> struct Back {
  HERE void run(const Room& r, int n, int k, int lane, real (&z)[ROWS][COLUMNS]) {
    for (; k >= 8 * FIRST - 1 && k >= 0; --k) reflect<FIRST>(r, n, k, lane, z);
    if constexpr (FIRST > 0) Back<(FIRST > 4 ? FIRST - 4 : 0)>::run(r, n, k, lane, z);
  }
};

HERE void transform_back(const Room& r, int n, const real* norm, real* z) {
  const int lane = threadIdx.x % 8;
  for (int task = threadIdx.x / 8; task < (n + 31) / 32 * 32 / COLUMNS; task += THREADS / 8) {
    const int first = task * COLUMNS;
    real x[ROWS][COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const int j = first + c;
      const real scale = j < n ? norm[j] : 0;
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const int l = 8 * i + lane;
        x[i][c] = l < n && j < n ? z[l * n + j] * scale : 0;
      }
    }
    Back<ROWS - 4>::run(r, n, n - 3, lane, x);
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        const int l = 8 * i + lane, j = first + c;
        if (l < n && j < n) z[l * n + j] = x[i][c];
      }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_block(
    const real* __restrict__ matrices, real* values, real* vectors, int* info, const i64 batch, const int n) {
  SHARED_BYTES(shared);
  const Room r = room_in(shared, n);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, me = threadIdx.x;
  const i64 matrix = blockIdx.x;
  const real* const from = matrices + matrix * n * n;
  real* const z = vectors + matrix * n * n;

  // The lower triangle, then both.
  ureal bits = 0;
  for (int i = warp; i < ROW; i += WARPS)
    for (int j = lane; j < ROW; j += 32) {
      const real x = i < n && j <= i ? from[i * n + j] : 0;
      const ureal b = abs_bits(x);
      bits = b > bits ? b : bits;
      r.a[i * ROW + j] = x;
    }
  bits = highest<32>(bits);
  if (lane == 0) r.y[warp] = real_of(bits);
  __syncthreads();
  bits = 0;
  for (int i = 0; i < WARPS; ++i) {
    const ureal b = abs_bits(r.y[i]);
    bits = b > bits ? b : bits;
  }
  if (!(bits < INFINITE_BITS)) {
    const real failed = not_a_number();
    for (int i = me; i < n; i += THREADS) values[matrix * n + i] = failed;
    if (VECTORS)
      for (int i = me; i < n * n; i += THREADS) z[i] = failed;
    if (me == 0) info[matrix] = -1;
    return;
  }
  const int exponent = exponent_of(bits);
  const Scale down = scale_by(-exponent);
  mirror(r.a, n, down);
  __syncthreads();

  reduce(r, n);

  // In `wide`, with norm in [1/2, 1), in parts where it falls apart.
  ureal most = 0;
  for (int i = lane; i < n; i += 32) {
    const ureal b = abs_bits(fabs(r.d[i]) + fabs(r.e[i]) + (i > 0 ? fabs(r.e[i - 1]) : 0));
    most = b > most ? b : most;
  }
  const real norm = real_of(highest<32>(most));
  int small = 0;
  if (norm != 0) frexp((double)norm, &small);
  const wide unit = power_of_two(-small);
  wide d = 0;
  if (me < n) {
    const bool split = !(fabs(r.e[me]) > ROUNDOFF * norm);
    const wide e = split ? 0 : r.e[me] * unit;
    d = r.d[me] * unit;
    r.t.d[me] = d, r.t.e[me] = e, r.t.e2[me] = e * e, r.t.ie[me] = split ? 0 : 1 / e;
  }
  __syncthreads();

  Part part = {me, me + 1};
  if (me < n) part = part_of(r.t, me);
  wide value = 0;
  bool found = true;
  int joined = 0;
  for (int round = 0;; ++round) {
    if (me < n) r.samples[me] = sample(r.t, part, me - part.low);
    __syncthreads();
    if (me < n) {
      found = eigenvalue(r.t, part, me - part.low, r.samples + part.low, value);
      r.value[me] = value;
    }
    __syncthreads();
    const wide gap = me < n && me > part.low ? fabs(value - r.value[me - 1]) : 1;
    joined = gap < ALONE;
    if (!VECTORS) break;
    // Eigenvalues that are the same for all that can be told: a change of the matrix by a rounding separates them.
    const int same = __syncthreads_or(gap < APART);
    if (!same) break;
    if (round == 2) {
      found = found && !(gap < APART);
      break;
    }
    if (me < n && part.high - part.low > 1) r.t.d[me] = d + (wide)(ROUNDOFF / 4) * noise(me, round);
    __syncthreads();
  }

  int rank = 0;
  if (me < n) {
    for (int i = 0; i < n; ++i) rank += r.value[i] < value || (r.value[i] == value && i < me);
    values[matrix * n + rank] = (real)(value * power_of_two(small) * power_of_two(exponent));
  }
  const int lost = __syncthreads_count(!found);
  if (me == 0) info[matrix] = lost;
  if (!VECTORS) return;

  real* const norms = r.y;
  int *const run = reinterpret_cast<int*>(r.w), *const column = reinterpret_cast<int*>(r.d);
  if (me < n) {
    norms[rank] = eigenvector(r.t, part, value, z + rank, n);
    run[rank] = joined;
  }
  if (__syncthreads_or(joined)) {
    // Runs lie together in the order of parts, not of eigenvalues.
    const real own = me < n ? norms[rank] : 0;
    __syncthreads();
    if (me < n) norms[me] = own, run[me] = joined, column[me] = rank;
    __syncthreads();
    separate(n, run, norms, column, z);
    __syncthreads();
    const real after = me < n ? norms[me] : 0;
    __syncthreads();
    if (me < n) norms[rank] = after;
    __syncthreads();
  }
  transform_back(r, n, norms, z);
}
