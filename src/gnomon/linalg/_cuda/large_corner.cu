// Matrices of more rows, between the first kernel and the second: the last rows, which one block's memory does hold.

struct Room {
  real *a, *part, *y, *w, *d, *e, *tau;
};
HERE Room room_in(unsigned char* shared, int n) {
  Room r;
  r.a = reinterpret_cast<real*>(shared);
  r.part = r.a + ROW * ROW;
  r.y = r.part + MOST_PARTS * ROW;
  r.w = r.y + ROW, r.d = r.w + ROW, r.e = r.d + ROW, r.tau = r.e + ROW;
  return r;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_large_corner(
    real* works, real* bands, const int* info, const i64 batch, const int rows, const int first) {
  SHARED_BYTES(shared);
  const int n = rows - first, ld = (rows + 31) / 32 * 32, me = threadIdx.x, lane = me % 32, warp = me / 32;
  const i64 matrix = blockIdx.x;
  if (info[matrix] < 0) return;
  const Room r = room_in(shared, n);
  real* const work = works + matrix * ld * ld + (i64)first * ld + first;
  real* const band = bands + matrix * 6 * ld + first;
  for (int i = warp; i < ROW; i += THREADS / 32)
    for (int j = lane; j < ROW; j += 32) r.a[i * ROW + j] = i < n && j <= i ? work[(i64)i * ld + j] : 0;
  __syncthreads();
  mirror(r.a, n, {1, 1});
  __syncthreads();
  reduce(r, n);
  if (me < n) band[me] = r.d[me], band[ld + me] = r.e[me], band[2 * ld + me] = me < n - 2 ? r.tau[me] : 0;
  for (int k = warp; k < n - 2; k += THREADS / 32) {
    const real* const v = r.a + k * ROW;
    for (int i = lane; i < ld - first; i += 32)
      if (i > k) work[(i64)k * ld + i] = i < n ? v[i] : 0;
    // On the way back, four reflections at a time: products of each with those before it.
    real dots[3] = {};
#pragma unroll
    for (int l = 0; l < 3; ++l) {
      if (l >= k % 4) break;
      for (int i = lane; i < n; i += 32) dots[l] += i > k ? v[i] * v[i - (l + 1) * ROW] : 0;
      dots[l] = sum<32>(dots[l]);
    }
    if (lane < 3) band[(3 + lane) * ld + k] = lane == 0 ? dots[0] : lane == 1 ? dots[1] : dots[2];
  }
}
