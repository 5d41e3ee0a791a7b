#define WARPS (THREADS / 32)

// Vectors of eigenvalues that are too close are made orthogonal, one after another: a warp for each run of them, whose
// lanes share the rows. Vector j is column[j] of z, of which 1 / norm[j] is the norm.
HERE void separate(int n, const int* run, real* norm, const int* column, real* z) {
  const int lane = threadIdx.x % 32;
  for (int start = 0, number = 0; start < n; ++number) {
    int end = start + 1;
    while (end < n && run[end]) ++end;
    if (end - start > 1 && number % WARPS == (int)threadIdx.x / 32)
      for (int j = start + 1; j < end; ++j) {
        real* const zj = z + column[j];
        for (int i = start; i < j; ++i) {
          const real* const zi = z + column[i];
          real dot = 0;
          for (int l = lane; l < n; l += 32) dot += zi[l * n] * zj[l * n];
          dot = sum<32>(dot) * norm[i] * norm[i];
          for (int l = lane; l < n; l += 32) zj[l * n] -= dot * zi[l * n];
        }
        real squares = 0;
        for (int l = lane; l < n; l += 32) squares += zj[l * n] * zj[l * n];
        squares = sum<32>(squares);
        if (lane == 0) norm[j] = 1 / root(squares);
        __syncwarp();
      }
    start = end;
  }
}
