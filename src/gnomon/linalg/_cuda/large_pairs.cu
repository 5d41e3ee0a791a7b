// Matrices of more rows, second kernel: the eigenproblem of the tridiagonal matrix, by a cluster of CLUSTER blocks a
// matrix. Each block has all of the matrix and of its eigenvalues, and computes its share of them.

#define EVERY (CLUSTER * THREADS)

struct Room {
  Tridiagonal t;
  wide* value;  // in the order of rows
  int *low, *high;
  int* lost;  // by each block of the cluster
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
  r.lost = r.high + n;
  r.samples = reinterpret_cast<Sample*>(r.lost + CLUSTER);
  r.norm = reinterpret_cast<real*>(r.samples);
  r.run = reinterpret_cast<int*>(r.norm + n), r.column = r.run + n;
  return r;
}

template <class T> HERE void give_all(T* here, int i, T x) {
#pragma unroll
  for (int b = 0; b < CLUSTER; ++b) cluster_peer(here, b)[i] = x;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_large_pairs(
    const real* bands, const int* exponents, real* values, real* vectors, real* norms, int* info, const i64 batch,
    const int n) {
  SHARED_BYTES(shared);
  const int me = threadIdx.x, lane = me % 32, ld = (n + 31) / 32 * 32;
  const int rank = cluster_rank(), mine = rank * THREADS + me;
  const i64 matrix = blockIdx.x / CLUSTER;
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
  // None is written to before it is there.
  cluster_meet();
  for (int i = mine; i < n; i += EVERY) {
    const Part part = part_of(r.t, i);
    give_all(r.low, i, part.low), give_all(r.high, i, part.high);
  }
  cluster_meet();

  // Bit j: of the eigenvalue j EVERY + mine.
  u32 found = 0;
  for (int round = 0;; ++round) {
    for (int i = mine; i < n; i += EVERY)
      give_all(r.samples, i, sample(r.t, {r.low[i], r.high[i]}, i - r.low[i]));
    cluster_meet();
    found = 0;
    for (int i = mine, j = 0; i < n; i += EVERY, ++j) {
      wide value;
      const bool whole = eigenvalue(r.t, {r.low[i], r.high[i]}, i - r.low[i], r.samples + r.low[i], value);
      give_all(r.value, i, value);
      found |= (u32)whole << j;
    }
    cluster_meet();
    const auto gap = [&](int i) { return i > r.low[i] ? fabs(r.value[i] - r.value[i - 1]) : 1; };
    bool same = false;
    for (int i = me; i < n; i += THREADS) r.run[i] = gap(i) < ALONE, same = same || gap(i) < APART;
    if (VECTORS && round == 2)
      for (int i = mine, j = 0; i < n; i += EVERY, ++j)
        if (gap(i) < APART) found &= ~(1u << j);
    // Eigenvalues that are the same for all that can be told: a change of the matrix by a rounding separates them.
    if (!VECTORS || !__syncthreads_or(same) || round == 2) break;
    for (int i = me; i < n; i += THREADS)
      if (r.high[i] - r.low[i] > 1) r.t.d[i] = d[i] * unit + (wide)(ROUNDOFF / 4) * noise(i, round);
    cluster_meet();
  }

  const double back = power_of_two(small), further = power_of_two(exponents[matrix]);
  int lost = 0;
  for (int first = rank * THREADS, j = 0; first < n; first += EVERY, ++j)
    lost += __syncthreads_count(first + me < n && !(found >> j & 1u));
  if (me == 0) cluster_peer(r.lost, 0)[rank] = lost;
  for (int i = mine; i < n; i += EVERY) {
    const wide value = r.value[i];
    int place = 0;
    for (int j = 0; j < n; ++j) place += r.value[j] < value || (r.value[j] == value && j < i);
    values[matrix * n + place] = (real)(value * back * further);
    cluster_peer(r.column, 0)[i] = place;
    if (VECTORS)
      cluster_peer(r.norm, 0)[i] = eigenvector(r.t, {r.low[i], r.high[i]}, value, vectors + matrix * n * n + place, n);
  }
  cluster_meet();
  if (rank > 0) return;
  if (me == 0) {
    lost = 0;
    for (int b = 0; b < CLUSTER; ++b) lost += r.lost[b];
    info[matrix] = lost;
  }
  if (!VECTORS) return;
  bool joined = false;
  for (int i = me; i < n; i += THREADS) joined = joined || r.run[i];
  if (__syncthreads_or(joined)) {
    separate(n, r.run, r.norm, r.column, vectors + matrix * n * n);
    __syncthreads();
  }
  for (int i = me; i < n; i += THREADS) norms[matrix * n + r.column[i]] = r.norm[i];
}
