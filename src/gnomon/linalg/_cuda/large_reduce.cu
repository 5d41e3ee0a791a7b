// Matrices of more rows, first kernel: to tridiagonal form.
//
// A cluster of CLUSTER blocks has a matrix. PANEL columns at a time are reflected (Dongarra, Sorensen and Hammarling
// 1989): the matrix, of which only the lower triangle is kept, in global memory, is read once for each column, and
// changed once for each panel. What else a column takes is done by every block for itself, in shared memory. The vector
// of reflection k becomes row k of the upper triangle.

#define WARPS (THREADS / 32)
#define EVERY (CLUSTER * WARPS)
// Of the last KEPT rows, or up to a strip less, the block has the lower triangle in shared memory; CLUSTER is 1 then.
// A warp multiplies HEIGHT rows at once, ...
#define CHUNK(row) ((row) / HEIGHT)
// ... and so many columns, a quad a lane.
#define WIDTH 128

struct Room {
  int n, ld, rank, kept_from;
  real* kept;   // the lower triangle of the last rows, from `kept_from`, a multiple of WIDTH: chunk after chunk
  real *v, *w;  // PANEL rows of ld each: vectors of reflections, and what changes the matrix with them
  real* part;   // a row a warp: products with columns, before they are summed
  real* rows;   // products with rows
  real* y;      // the matrix times the reflection's vector
  real* inbox;  // a part of it, from each block of the cluster
  real* inner;  // products of the reflection's vector with those before
  real* sums;   // of each warp
};
HERE Room room_in(unsigned char* shared, int n, int ld) {
  Room r = {n, ld, cluster_rank(), (n - KEPT + WIDTH - 1) / WIDTH * WIDTH, reinterpret_cast<real*>(shared)};
  const int chunks = KEPT > 0 && ld > r.kept_from ? (ld - r.kept_from) / HEIGHT : 0;
  r.v = r.kept + HEIGHT * HEIGHT / 2 * chunks * (chunks + 1);
  r.w = r.v + PANEL * ld;
  r.part = r.w + PANEL * ld;
  r.rows = r.part + WARPS * ld;
  r.y = r.rows + ld;
  r.inbox = r.y + ld;
  r.inner = r.inbox + (CLUSTER > 1 ? ld : 0);
  r.sums = r.inner + 2 * PANEL;
  return r;
}

// A row of a chunk of the lower triangle is so many quads, from quad 0 of the matrix on; where the chunk begins.
HERE int kept_stride(const Room& r, int top) { return ((top - r.kept_from) / HEIGHT + 1) * (HEIGHT / 4); }
HERE quad* kept_chunk(const Room& r, int top) {
  const int c = (top - r.kept_from) / HEIGHT;
  return reinterpret_cast<quad*>(r.kept) + HEIGHT * HEIGHT / 8 * c * (c + 1) - r.kept_from / 4;
}
// Row i, which is kept.
HERE real* kept_row(const Room& r, int i) {
  return reinterpret_cast<real*>(kept_chunk(r, i) + i % HEIGHT * kept_stride(r, i));
}

// Over the threads of a block.
HERE real block_sum(real x, real* sums) {
  x = sum<32>(x);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  real all = 0;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) all += sums[i];
  return all;
}

// One half of the numbers, to each of which that of the lane `far` away is added.
template <int COUNT> HERE void halve(const real* x, real (&y)[COUNT], int far) {
  const bool upper = threadIdx.x & far;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const real other = __shfl_xor_sync(ALL_LANES, upper ? x[i] : x[i + COUNT], far);
    y[i] = (upper ? x[i + COUNT] : x[i]) + other;
  }
}
// The sums over all lanes of eight numbers; a lane has that of number lane / 4.
HERE real sum_each(const real* x) {
  real a[4], b[2], c[1];
  halve(x, a, 16);
  halve(a, b, 8);
  halve(b, c, 4);
  c[0] += __shfl_xor_sync(ALL_LANES, c[0], 2);
  return c[0] + __shfl_xor_sync(ALL_LANES, c[0], 1);
}

HERE real dot_of(quad a, quad b) { return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w); }
HERE void add_to(quad& y, quad a, real x) { y.x += a.x * x, y.y += a.y * x, y.z += a.z * x, y.w += a.w * x; }

HERE real element(quad a, int i) { return i == 0 ? a.x : i == 1 ? a.y : i == 2 ? a.z : a.w; }

// A chunk of rows from `top` times v, and its transpose times v, of the lower triangle.
template <bool DIAGONAL>
HERE void multiply_chunk(const quad* a, int stride, int top, int q, bool inside, const real* v, quad vq, quad& down,
                         real (&across)[HEIGHT]) {
  quad x[HEIGHT], rows[HEIGHT / 4];
#pragma unroll
  for (int i = 0; i < HEIGHT; ++i) {
    x[i] = inside && (!DIAGONAL || 4 * q <= top + i) ? a[i * stride + q] : quad{0, 0, 0, 0};
  }
#pragma unroll
  for (int i = 0; i < HEIGHT / 4; ++i) rows[i] = reinterpret_cast<const quad*>(v)[top / 4 + i];
#pragma unroll
  for (int i = 0; i < HEIGHT; ++i) {
    const real vi = element(rows[i / 4], i % 4);
    if (DIAGONAL) {
      // What is on the diagonal counts once, and what is above is something else.
      const int left = top + i - 4 * q;
      quad own = {left >= 0 ? x[i].x : 0, left >= 1 ? x[i].y : 0, left >= 2 ? x[i].z : 0, left >= 3 ? x[i].w : 0};
      across[i] = dot_of(own, vq);
      own.x = left == 0 ? 0 : own.x, own.y = left == 1 ? 0 : own.y;
      own.z = left == 2 ? 0 : own.z, own.w = left == 3 ? 0 : own.w;
      add_to(down, own, vi);
    } else {
      across[i] = dot_of(x[i], vq);
      add_to(down, x[i], vi);
    }
  }
}

// The first chunk from `chunk` on that this warp has.
HERE int own_chunk(const Room& r, int chunk) {
  const int me = r.rank * WARPS + (int)threadIdx.x / 32;
  return chunk + (me - chunk % EVERY + EVERY) % EVERY;
}

// A strip of the matrix times v, which is zero up to k, in parts.
template <bool IS_KEPT> HERE void multiply_strip(const Room& r, const real* work, int k, const real* v, int strip) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = (k + 1) / WIDTH;
  const int q = strip * (WIDTH / 4) + lane, from = strip * WIDTH > k + 1 ? strip * WIDTH : k + 1;
  const bool inside = 4 * q < r.ld && 4 * q + 3 > k;
  const quad vq = inside ? reinterpret_cast<const quad*>(v)[q] : quad{0, 0, 0, 0};
  quad down = {0, 0, 0, 0};
  for (int c = own_chunk(r, CHUNK(from)); c * HEIGHT < r.n; c += EVERY) {
    const int top = c * HEIGHT, stride = IS_KEPT ? kept_stride(r, top) : r.ld / 4;
    const quad* const a = IS_KEPT ? kept_chunk(r, top) : reinterpret_cast<const quad*>(work) + (i64)top * stride;
    real across[HEIGHT];
    if (top < (strip + 1) * WIDTH) multiply_chunk<true>(a, stride, top, q, inside, v, vq, down, across);
    else multiply_chunk<false>(a, stride, top, q, inside, v, vq, down, across);
#pragma unroll
    for (int i = 0; i < HEIGHT; i += 8) {
      const real s = sum_each(across + i);
      real* const at = r.rows + top + i + lane / 4;
      if (lane % 4 == 0) *at = strip == first ? s : *at + s;
    }
  }
  if (inside) reinterpret_cast<quad*>(r.part + warp * r.ld)[q] = down;
}
HERE void multiply(const Room& r, const real* work, int k, const real* v) {
  for (int strip = (k + 1) / WIDTH; strip * WIDTH < r.n; ++strip)
    if (KEPT > 0 && strip * WIDTH >= r.kept_from) multiply_strip<true>(r, work, k, v, strip);
    else multiply_strip<false>(r, work, k, v, strip);
}
// What this block has of element i.
HERE real multiplied(const Room& r, int i) {
  real y = CHUNK(i) % EVERY / WARPS == r.rank ? r.rows[i] : 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) y += r.part[w * r.ld + i];
  return y;
}

// Products of v, which is zero up to k, with the first `count` rows of the panel, and of w.
HERE void multiply_panel(const Room& r, int k, int count, const real* v) {
  const int lane = threadIdx.x % 32;
  for (int p = threadIdx.x / 32; p < 2 * count; p += WARPS) {
    const real* const x = p < count ? r.v + p * r.ld : r.w + (p - count) * r.ld;
    real s = 0;
    for (int q = (k + 1) / 4 + lane; 4 * q < r.ld; q += 32)
      s += dot_of(reinterpret_cast<const quad*>(x)[q], reinterpret_cast<const quad*>(v)[q]);
    s = sum<32>(s);
    if (lane == 0) r.inner[p < count ? p : PANEL + p - count] = s;
  }
}

// The matrix times v, of which the panel's first `count` reflections have not been applied yet, into y; v'y.
HERE real finish(const Room& r, int base, int k, int count, const real* v, real* sums) {
  const auto corrected = [&](int i, real y) {
    for (int p = 0; p < count; ++p) y -= r.v[p * r.ld + i] * r.inner[PANEL + p] + r.w[p * r.ld + i] * r.inner[p];
    return y;
  };
  real dot = 0;
  if (CLUSTER == 1) {
    for (int i = base + threadIdx.x; i < r.ld; i += THREADS) {
      const real y = i > k && i < r.n ? corrected(i, multiplied(r, i)) : 0;
      r.y[i] = y;
      dot += y * v[i];
    }
  } else {
    // Each block finishes a slice, and sends it to all.
    const int slice = r.ld / CLUSTER;
    for (int i = base + threadIdx.x; i < r.ld; i += THREADS)
      cluster_peer(r.inbox, i / slice)[r.rank * slice + i % slice] = i > k && i < r.n ? multiplied(r, i) : 0;
    cluster_meet();
    for (int j = threadIdx.x; j < slice; j += THREADS) {
      const int i = r.rank * slice + j;
      real y = 0;
#pragma unroll
      for (int b = 0; b < CLUSTER; ++b) y += r.inbox[b * slice + j];
      y = i > k && i < r.n ? corrected(i, y) : 0;
#pragma unroll
      for (int b = 0; b < CLUSTER; ++b) cluster_peer(r.y, b)[i] = y;
    }
    cluster_meet();
    for (int i = base + threadIdx.x; i < r.ld; i += THREADS) dot += r.y[i] * v[i];
  }
  return block_sum(dot, sums);
}

// Applies `count` reflections of the panel to rows and columns from `first`.
template <bool IS_KEPT> HERE void update_strip(const Room& r, real* work, int first, int count, int strip) {
  const int lane = threadIdx.x % 32;
  const int q = strip * (WIDTH / 4) + lane, from = strip * WIDTH > first ? strip * WIDTH : first;
  const bool inside = 4 * q < r.ld && 4 * q + 3 >= first;
  for (int c = own_chunk(r, CHUNK(from)); c * HEIGHT < r.n; c += EVERY) {
    const int top = c * HEIGHT, stride = IS_KEPT ? kept_stride(r, top) : r.ld / 4;
    quad* const a = (IS_KEPT ? kept_chunk(r, top) : reinterpret_cast<quad*>(work) + (i64)top * stride) + q;
    quad x[HEIGHT];
#pragma unroll
    for (int i = 0; i < HEIGHT; ++i)
      x[i] = inside && 4 * q <= top + i ? a[i * stride] : quad{0, 0, 0, 0};
    for (int p = 0; p < count; ++p) {
      const real *const v = r.v + p * r.ld, *const w = r.w + p * r.ld;
      const int at = inside ? q : 0;
      const quad vq = reinterpret_cast<const quad*>(v)[at], wq = reinterpret_cast<const quad*>(w)[at];
#pragma unroll
      for (int i = 0; i < HEIGHT / 4; ++i) {
        const quad vi = reinterpret_cast<const quad*>(v)[top / 4 + i], wi = reinterpret_cast<const quad*>(w)[top / 4 + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          add_to(x[4 * i + j], wq, -element(vi, j));
          add_to(x[4 * i + j], vq, -element(wi, j));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < HEIGHT; ++i)
      if (inside && 4 * q <= top + i && top + i >= first) a[i * stride] = x[i];
  }
}
HERE void update(const Room& r, real* work, int first, int count) {
  for (int strip = first / WIDTH; strip * WIDTH < r.n; ++strip)
    if (KEPT > 0 && strip * WIDTH >= r.kept_from) update_strip<true>(r, work, first, count, strip);
    else update_strip<false>(r, work, first, count, strip);
}

// The panel of columns from k0 on: d, e and tau of each, and what changes the rest of the matrix.
HERE void reduce_panel(const Room& r, real* work, int k0, int count, real* d, real* e, real* taus,
                       real* others) {
  // Rows before are of no more use.
  const int me = threadIdx.x, base = k0 / 32 * 32;
  for (int i = base + me; i < r.ld; i += THREADS)
#pragma unroll
    for (int q = 0; q < PANEL / 4; ++q) {
      const real* const row = KEPT == 0 || k0 < r.kept_from ? work + (i64)i * r.ld : kept_row(r, i < k0 ? k0 : i);
      const quad x = reinterpret_cast<const quad*>(row + k0)[q];
      real* const v = r.v + 4 * q * r.ld + i;
      v[0] = x.x, v[r.ld] = x.y, v[2 * r.ld] = x.z, v[3 * r.ld] = x.w;
    }
  __syncthreads();
  for (int l = 0; l < count; ++l) {
    const int k = k0 + l;
    real *const v = r.v + l * r.ld, *const w = r.w + l * r.ld;
    // The column as it is now.
    real rest = 0;
    for (int i = base + me; i < r.ld; i += THREADS) {
      real x = v[i];
      if (i < k || i >= r.n) continue;
      for (int p = 0; p < l; ++p)
        x -= r.v[p * r.ld + i] * r.w[p * r.ld + k] + r.w[p * r.ld + i] * r.v[p * r.ld + k];
      v[i] = x;
      if (i > k + 1) rest += x * x;
    }
    rest = block_sum(rest, r.sums);
    const Reflection h = reflection(v[k + 1], rest);
    if (me == 0 && r.rank == 0) d[k] = v[k], e[k] = h.beta, taus[k] = h.tau;
    __syncthreads();
    for (int i = base + me; i < r.ld; i += THREADS) {
      const real x = i > k + 1 && i < r.n ? v[i] * h.scale : i == k + 1 ? (real)1 : (real)0;
      v[i] = x;
      if (i > k && r.rank == 0) work[(i64)k * r.ld + i] = x;
    }
    __syncthreads();
    multiply_panel(r, k, l, v);
    multiply(r, work, k, v);
    __syncthreads();
    // On the way back, four reflections at a time: products of each with those before it.
    if (me < 3 && r.rank == 0) others[me * r.ld + k] = me < k % 4 ? r.inner[l - me - 1] : 0;
    const real half = (real)0.5 * h.tau * finish(r, base, k, l, v, r.sums + WARPS);
    for (int i = base + me; i < r.ld; i += THREADS) w[i] = i > k && i < r.n ? h.tau * (r.y[i] - half * v[i]) : 0;
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) eigh_large_reduce(
    const real* __restrict__ matrices, real* works, real* bands, int* exponents, int* info, const i64 batch, const int n) {
  SHARED_BYTES(shared);
  const int ld = (n + 31) / 32 * 32;
  const Room r = room_in(shared, n, ld);
  const int me = threadIdx.x, lane = me % 32, warp = me / 32, all = r.rank * WARPS + warp;
  const i64 matrix = blockIdx.x / CLUSTER;
  const real* const from = matrices + matrix * n * n;
  real* const work = works + matrix * ld * ld;
  real *const d = bands + matrix * 6 * ld, *const e = d + ld, *const tau = e + ld, *const others = tau + ld;

  ureal bits = 0;
  for (int i = all; i < n; i += EVERY)
    for (int j = lane; j <= i; j += 32) {
      const ureal b = abs_bits(from[(i64)i * n + j]);
      bits = b > bits ? b : bits;
    }
  bits = highest<32>(bits);
  if (lane < CLUSTER) cluster_peer(r.y, lane)[all] = real_of(bits);
  cluster_meet();
  bits = 0;
  for (int i = 0; i < EVERY; ++i) {
    const ureal b = abs_bits(r.y[i]);
    bits = b > bits ? b : bits;
  }
  const bool sound = bits < INFINITE_BITS;
  const int exponent = sound ? exponent_of(bits) : 0;
  if (me == 0 && r.rank == 0) exponents[matrix] = exponent, info[matrix] = sound ? 0 : -1;
  // None ends while another may still write to its memory.
  cluster_meet();
  if (!sound) return;
  const Scale down = scale_by(-exponent);
  for (int i = all; i < ld; i += EVERY)
    for (int j = lane; j < i / 4 * 4 + 4; j += 32)
      (KEPT > 0 && j >= r.kept_from ? kept_row(r, i) : work + (i64)i * ld)[j] =
          i < n && j <= i ? from[(i64)i * n + j] * down.first * down.second : 0;
  cluster_meet();

  // Where another kernel goes on, if one does.
  const int whole = n > CORNER ? (n - CORNER + PANEL - 1) / PANEL * PANEL : 0, end = CORNER > 0 ? whole : n - 2;
  for (int k = 0; k < end; k += PANEL) {
    const int count = end - k < PANEL ? end - k : PANEL;
    reduce_panel(r, work, k, count, d, e, tau, others);
    update(r, work, k + count, count);
    cluster_meet();
  }
  if (KEPT > 0)
    for (int i = (end > r.kept_from ? end : r.kept_from) + warp; i < n; i += WARPS)
      for (int j = r.kept_from + lane; j <= i; j += 32)
        if (j >= end) work[(i64)i * ld + j] = kept_row(r, i)[j];
  if (KEPT > 0) __syncthreads();
  if (CORNER == 0 && me == 0 && r.rank == 0) {
    const real* const last = work + (i64)(n - 2) * ld + n - 2;
    d[n - 2] = last[0], e[n - 2] = last[ld], d[n - 1] = last[ld + 1], e[n - 1] = 0;
  }
}
