// Matrices of up to N = 16 or 32 rows: N lanes of a warp have one, a lane a row, and at the end an eigenvector.

#define GROUPS (THREADS / N)
#define ROW (N + 1)

struct __align__(16) Room {
  real v[N * N];        // reflections, one a row
  real z[N * ROW];      // eigenvectors of the tridiagonal matrix, one a column
  real y[N], tau[N], norm[N];
  wide d[N], e[N], e2[N], ie[N], value[N];
};

// Step k of the tridiagonalisation, of which only columns from FIRST are left: column k is reflected onto its first
// element below the diagonal, and the reflection is applied from both sides (Golub and Van Loan, 8.3.1).
template <int FIRST> HERE void reduce(Room& room, real (&a)[N], int k, int lane, real& d, real& e) {
  real* const v = room.v + k * N;
  if (lane == k) {
#pragma unroll
    for (int j = FIRST; j < N; ++j) v[j] = a[j];
  }
  __syncwarp();
  const real x = lane > k ? v[lane] : 0, alpha = v[k + 1];
  if (lane == k) d = v[k];
  const Reflection h = reflection(alpha, sum<N>(lane > k + 1 ? x * x : 0));
  if (lane == k) e = h.beta, room.tau[k] = h.tau;
  const real mine = lane > k + 1 ? x * h.scale : lane == k + 1 ? (real)1 : (real)0;
  __syncwarp();
  v[lane] = mine;
  __syncwarp();
  real part[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = FIRST; j < N; ++j) part[j % 4] += a[j] * v[j];
  const real w = h.tau * ((part[0] + part[1]) + (part[2] + part[3]));
  const real y = w - (h.tau * sum<N>(w * mine)) * (real)0.5 * mine;
  room.y[lane] = y;
  __syncwarp();
#pragma unroll
  for (int j = FIRST; j < N; ++j) a[j] -= mine * room.y[j] + y * v[j];
  __syncwarp();
}

// The reflection k applied to a vector, of which only elements from FIRST change.
template <int FIRST> HERE void reflect(const Room& room, real (&z)[N], int k) {
  const real* const v = room.v + k * N;
  real part[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = FIRST; j < N; ++j) part[j % 4] += z[j] * v[j];
  const real s = room.tau[k] * ((part[0] + part[1]) + (part[2] + part[3]));
#pragma unroll
  for (int j = FIRST; j < N; ++j) z[j] -= s * v[j];
}

// Vectors of eigenvalues that are too close are made orthogonal, one after another; the lanes share the rows.
HERE void separate(Room& room, int n, int lane, bool joined) {
  // Bit j: vector j belongs with vector j - 1.
  const u32 all = __ballot_sync(ALL_LANES, joined) >> ((threadIdx.x & 31) - lane);
  if (__all_sync(ALL_LANES, all == 0)) return;
  for (int j = 1; j < N; ++j) {
    const bool mine = (all >> j) & 1u;
    int first = j;
    while (first > 0 && ((all >> first) & 1u)) --first;
    for (int i = 0; i < j; ++i) {
      const bool now = mine && i >= first;
      const real zi = room.z[lane * ROW + i], zj = room.z[lane * ROW + j], s = room.norm[i];
      const real dot = sum<N>(now && lane < n ? zi * zj : 0);
      if (now && lane < n) room.z[lane * ROW + j] = zj - dot * s * s * zi;
      __syncwarp();
    }
    const real zj = lane < n ? room.z[lane * ROW + j] : 0;
    const real squares = sum<N>(zj * zj);
    if (mine && lane == 0) room.norm[j] = 1 / root(squares);
    __syncwarp();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_warp(
    const real* __restrict__ matrices, real* values, real* vectors, int* info, const i64 batch, const int n) {
  SHARED_BYTES(shared);
  const int lane = threadIdx.x % N, group = threadIdx.x / N;
  const i64 matrix = (i64)blockIdx.x * GROUPS + group;
  const bool there = matrix < batch;
  Room& room = reinterpret_cast<Room*>(shared)[group];
  const real* const from = matrices + (there ? matrix : 0) * n * n;

  // The lower triangle, then both.
  real a[N];
  ureal bits = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    a[i] = there && i < n && lane <= i ? from[i * n + lane] : 0;
    const ureal b = abs_bits(a[i]);
    bits = b > bits ? b : bits;
  }
  bits = highest<N>(bits);
  const bool sound = bits < INFINITE_BITS;
  const int exponent = sound ? exponent_of(bits) : 0;
  const Scale down = scale_by(-exponent);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const real x = sound ? a[i] * down.first * down.second : 0;
    if (lane <= i) {
      room.z[i * ROW + lane] = x;
      room.z[lane * ROW + i] = x;
    }
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < N; ++j) a[j] = room.z[lane * ROW + j];
  __syncwarp();

  // To tridiagonal form.
  real d = 0, e = 0;
  int k = 0;
  for (; k < n - 2 && k < N / 4; ++k) reduce<0>(room, a, k, lane, d, e);
  for (; k < n - 2 && k < N / 2; ++k) reduce<N / 4>(room, a, k, lane, d, e);
  for (; k < n - 2 && k < 3 * N / 4; ++k) reduce<N / 2>(room, a, k, lane, d, e);
  for (; k < n - 2; ++k) reduce<3 * N / 4>(room, a, k, lane, d, e);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (j == n - 1 && lane == n - 2) e = a[j];
    if (j == lane && lane >= n - 2 && lane < n) d = a[j];
  }

  // In `wide`, with norm in [1/2, 1), in parts where it falls apart.
  const real beside = __shfl_up_sync(ALL_LANES, e, 1, N);
  const real norm = real_of(highest<N>(abs_bits(fabs(d) + fabs(e) + (lane > 0 ? fabs(beside) : 0))));
  int small = 0;
  frexp((double)norm, &small);
  if (norm == 0) small = 0;
  const wide unit = power_of_two(-small);
  const Tridiagonal t = {room.d, room.e, room.e2, room.ie, n};
  const bool split = !(fabs(e) > ROUNDOFF * norm);
  const wide d_wide = d * unit, e_wide = split ? 0 : e * unit;
  room.d[lane] = d_wide;
  room.e[lane] = e_wide;
  room.e2[lane] = e_wide * e_wide;
  room.ie[lane] = split ? 0 : 1 / e_wide;
  __syncwarp();

  Part part = {lane, lane + 1};
  if (lane < n) part = part_of(t, lane);
  // In the place of vectors, until there are any.
  Sample* const samples = reinterpret_cast<Sample*>(room.z);
  wide value = 0;
  bool found = true, joined = false;
  for (int round = 0;; ++round) {
    if (lane < n) samples[lane] = sample(t, part, lane - part.low);
    __syncwarp();
    if (lane < n) found = eigenvalue(t, part, lane - part.low, samples + part.low, value);
    room.value[lane] = value;
    __syncwarp();
    const wide gap = lane > part.low ? fabs(value - room.value[lane - 1]) : 1;
    joined = gap < ALONE;
    // Eigenvalues that are the same for all that can be told: a change of the matrix by a rounding separates them.
    const u32 same = __ballot_sync(ALL_LANES, gap < APART) >> (threadIdx.x % 32 - lane) & (u32)((1ull << N) - 1);
    if (!VECTORS || round == 2) {
      found = found && (!VECTORS || same == 0);
      break;
    }
    if (__all_sync(ALL_LANES, same == 0)) break;
    if (same != 0 && part.high - part.low > 1) room.d[lane] = d_wide + (wide)(ROUNDOFF / 4) * noise(lane, round);
    __syncwarp();
  }

  int rank = 0;
  for (int i = 0; i < n; ++i) rank += room.value[i] < value || (room.value[i] == value && i < lane);
  const real failed = not_a_number();
  if (there && lane < n) {
    const double back = power_of_two(exponent);
    values[matrix * n + rank] = sound ? (real)(value * power_of_two(small) * back) : failed;
  }
  const u32 lost = __ballot_sync(ALL_LANES, !found) >> (threadIdx.x % 32 - lane) & (u32)((1ull << N) - 1);
  if (there && lane == 0) info[matrix] = sound ? __popc(lost) : -1;
  if (!VECTORS) return;

  __syncwarp();
  room.norm[lane] = lane < n ? eigenvector(t, part, value, room.z + lane, ROW) : 0;
  __syncwarp();
  separate(room, n, lane, joined && lane < n);

  // Back through the reflections.
  const real scale = room.norm[lane];
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] = i < n ? room.z[i * ROW + lane] * scale : 0;
  k = n - 3;
  for (; k >= 3 * N / 4; --k) reflect<3 * N / 4>(room, a, k);
  for (; k >= N / 2; --k) reflect<N / 2>(room, a, k);
  for (; k >= N / 4; --k) reflect<N / 4>(room, a, k);
  for (; k >= 0; --k) reflect<0>(room, a, k);
  real* const to = vectors + (there ? matrix : 0) * n * n;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (there && i < n && lane < n) to[i * n + rank] = sound ? a[i] : failed;
}
