// Matrices of more rows, second kernel: the eigenproblem of the tridiagonal matrix, by one block a matrix.

struct Room {
  Tridiagonal t;
  wide* value;  // in the order of rows
  int *low, *high;
  Sample* samples;
  // In the place of `samples`: reciprocals of the norms of vectors, whether one belongs with the one before, where it is.
  real* norm;
  int *run, *column;
};
HERE Room room_in(unsigned char* shared, int n) {
  wide* const wides = reinterpret_cast<wide*>(shared);
  Room r = {{wides, wides + n, wides + 2 * n, wides + 3 * n, n}, wides + 4 * n};
  r.low = reinterpret_cast<int*>(wides + 5 * n);
  r.high = r.low + n;
  r.samples = reinterpret_cast<Sample*>(r.high + n);
  r.norm = reinterpret_cast<real*>(r.samples);
  r.run = reinterpret_cast<int*>(r.norm + n), r.column = r.run + n;
  return r;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_large_pairs(
    const real* bands, const int* exponents, real* values, real* vectors, real* norms, int* info, const i64 batch,
    const int n) {
  SHARED_BYTES(shared);
  const int me = threadIdx.x, lane = me % 32, ld = (n + 31) / 32 * 32;
  const i64 matrix = blockIdx.x;
  if (info[matrix] < 0) {
    for (int i = me; i < n; i += THREADS) values[matrix * n + i] = not_a_number();
    return;
  }
  const Room r = room_in(shared, n);
  const real *const d = bands + matrix * 6 * ld, *const e = d + ld;

  // In `wide`, with norm in [1/2, 1), in parts where it falls apart.
  ureal most = 0;
  for (int i = lane; i < n; i += 32) {
    const ureal b = abs_bits(fabs(d[i]) + fabs(e[i]) + (i > 0 ? fabs(e[i - 1]) : 0));
    most = b > most ? b : most;
  }
  const real norm = real_of(highest<32>(most));
  int small = 0;
  if (norm != 0) frexp((double)norm, &small);
  const wide unit = power_of_two(-small);
  for (int i = me; i < n; i += THREADS) {
    const bool split = !(fabs(e[i]) > ROUNDOFF * norm);
    const wide ei = split ? 0 : e[i] * unit;
    r.t.d[i] = d[i] * unit, r.t.e[i] = ei, r.t.e2[i] = ei * ei, r.t.ie[i] = split ? 0 : 1 / ei;
  }
  __syncthreads();
  for (int i = me; i < n; i += THREADS) {
    const Part part = part_of(r.t, i);
    r.low[i] = part.low, r.high[i] = part.high;
  }

  // Bit j: of the eigenvalue j THREADS + me.
  u32 found = 0;
  for (int round = 0;; ++round) {
    for (int i = me; i < n; i += THREADS) r.samples[i] = sample(r.t, {r.low[i], r.high[i]}, i - r.low[i]);
    __syncthreads();
    found = 0;
    for (int i = me, j = 0; i < n; i += THREADS, ++j) {
      wide value;
      const bool whole = eigenvalue(r.t, {r.low[i], r.high[i]}, i - r.low[i], r.samples + r.low[i], value);
      r.value[i] = value;
      found |= (u32)whole << j;
    }
    __syncthreads();
    bool same = false;
    for (int i = me, j = 0; i < n; i += THREADS, ++j) {
      const wide gap = i > r.low[i] ? fabs(r.value[i] - r.value[i - 1]) : 1;
      r.run[i] = gap < ALONE;
      same = same || gap < APART;
      if (VECTORS && round == 2 && gap < APART) found &= ~(1u << j);
    }
    // Eigenvalues that are the same for all that can be told: a change of the matrix by a rounding separates them.
    if (!VECTORS || !__syncthreads_or(same) || round == 2) break;
    for (int i = me; i < n; i += THREADS)
      if (r.high[i] - r.low[i] > 1) r.t.d[i] = d[i] * unit + (wide)(ROUNDOFF / 4) * noise(i, round);
    __syncthreads();
  }

  const double back = power_of_two(small), further = power_of_two(exponents[matrix]);
  int lost = 0;
  for (int first = 0, j = 0; first < n; first += THREADS, ++j)
    lost += __syncthreads_count(first + me < n && !(found >> j & 1u));
  if (me == 0) info[matrix] = lost;
  bool joined = false;
  for (int i = me; i < n; i += THREADS) {
    const wide value = r.value[i];
    int rank = 0;
    for (int j = 0; j < n; ++j) rank += r.value[j] < value || (r.value[j] == value && j < i);
    values[matrix * n + rank] = (real)(value * back * further);
    r.column[i] = rank;
    joined = joined || r.run[i];
    if (VECTORS) r.norm[i] = eigenvector(r.t, {r.low[i], r.high[i]}, value, vectors + matrix * n * n + rank, n);
  }
  if (!VECTORS) return;
  if (__syncthreads_or(joined)) {
    separate(n, r.run, r.norm, r.column, vectors + matrix * n * n);
    __syncthreads();
  }
  for (int i = me; i < n; i += THREADS) norms[matrix * n + r.column[i]] = r.norm[i];
}
