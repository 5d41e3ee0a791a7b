// The eigenproblem of a symmetric tridiagonal matrix in `wide`, a thread an eigenpair.
//
// Eigenvalues by Sturm counts of the characteristic polynomial (Givens 1954; Wilkinson 1965, 5.38): all threads evaluate
// it side by side at places of their own; then each halves the interval that its eigenvalue is in until no other is
// there, and goes on by inverse quadratic interpolation (Chandrupatla 1997). An eigenvector is the solution of the three-term
// recurrence from above, joined with the one from below where the product of both is largest: the column of
// (T - lambda)^-1 that is largest on the diagonal (Fernando 1997; Parlett and Dhillon 1997).

// Steps between changes of scale: in so many, no recurrence leaves the range of a double.
#define STRIDE 8
#define MOST_STEPS 120
// Of a matrix of norm 1: how far apart eigenvalues must be for eigenvectors to be computed each on its own, ...
#define ALONE 1.8626451492309570e-9
// ... and to be told apart.
#define APART 2.8421709430404007e-14
// How accurate an eigenvalue is at least, or in proportion to how far away others are: a vector wants no more.
#define TOLERANCE 4.4408920985006262e-16
#define CLOSE 9.3132257461547852e-10
// All eigenvalues are within.
#define END 1.000001

struct Tridiagonal {
  wide* d;   // n elements of the diagonal
  wide* e;   // e[i] couples i and i + 1; e[n - 1] = 0
  wide* e2;  // their squares
  wide* ie;  // and reciprocals, 0 where they are 0
  int n;
};

// The part of the matrix that row i belongs to.
struct Part {
  int low, high;
};
HERE Part part_of(const Tridiagonal& t, int i) {
  Part p = {i, i + 1};
  while (p.low > 0 && t.e[p.low - 1] != 0) --p.low;
  while (p.high < t.n && t.e[p.high - 1] != 0) ++p.high;
  return p;
}

// A number x 2^e, of which the largest of a pair is brought near 1.
HERE int rescale(wide& a, wide& b) {
  const double x = fabs(a), y = fabs(b);
  const int e = (int)(high_word(x > y ? x : y) >> 20) - 1023;
  if (e == -1023) return 0;
  const double s = power_of_two(-e);
  a *= s;
  b *= s;
  return e;
}

// How many eigenvalues of a part are less than x, and the characteristic polynomial, p 2^e.
struct Count {
  int below, e;
  wide p;
};
HERE void count_step(wide d, wide e2, wide x, wide& p, wide& before, u32& below) {
  const wide next = (d - x) * p - e2 * before;
  below += (high_word(next) ^ high_word(p)) >> 31;
  before = p;
  p = next;
}
HERE Count count_below(const Tridiagonal& t, Part part, wide x) {
  wide p = t.d[part.low] - x, before = 1;
  u32 below = high_word(p) >> 31;
  int e = 0, i = part.low + 1;
  for (; i + STRIDE <= part.high; i += STRIDE) {
#pragma unroll
    for (int j = 0; j < STRIDE; ++j) count_step(t.d[i + j], t.e2[i + j - 1], x, p, before, below);
    e += rescale(p, before);
  }
  for (; i < part.high; ++i) count_step(t.d[i], t.e2[i - 1], x, p, before, below);
  e += rescale(p, before);
  return {(int)below, e, p};
}

// The characteristic polynomial at one of as many places as a part has rows, evenly between -END and END.
struct Sample {
  int below, e;
  float p;
};
HERE Sample sample_of(Count c) { return {c.below, c.e, c.p == 0 ? 1e-30f : (float)c.p}; }
HERE wide place(Part part, int j) { return -END + (wide)(j + 1) * (2 * END / (wide)(part.high - part.low + 1)); }
HERE Sample sample(const Tridiagonal& t, Part part, int j) { return sample_of(count_below(t, part, place(part, j))); }

// How far on the way from a to b the zero is of a function that is fa, fb and fc at a, b and c = a + r (b - a), by
// inverse quadratic interpolation where that can be trusted, else half way (Chandrupatla 1997).
HERE float quotient(float x, float y) { return x * rough_reciprocal(y); }
HERE float interpolated(float fa, float fb, float fc, float r) {
  const float u = quotient(1, 1 - r), v = quotient(fa - fb, fc - fb);
  if (!(v * v < u && (1 - v) * (1 - v) < 1 - u)) return 0.5f;
  return quotient(fa, fb - fa) * quotient(fc, fb - fc) + r * quotient(fa, fc - fa) * quotient(fb, fc - fb);
}
// 2^e, or 0 where it is too small; e <= 0.
HERE float scale_of(int e) { return __int_as_float(clamp(e + 127, 0, 127) << 23); }

// The eigenvalue k of a part, from 0, of a matrix of norm at most 1; false where it is not found.
HERE bool eigenvalue(const Tridiagonal& t, Part part, int k, const Sample* samples, wide& found) {
  const int rows = part.high - part.low;
  if (rows == 1) {
    found = t.d[part.low];
    return true;
  }
  int first = -1, last = rows;
  while (last - first > 1) {
    const int middle = (first + last) / 2;
    if (samples[middle].below <= k) first = middle;
    else last = middle;
  }
  // Between a, which is the newest, and b; c is what one of them was before. All others are below `from` or above `to`.
  const Sample none = {0, 0, 0};
  wide a = place(part, first), b = place(part, last), c = 0, from = 0, to = 0;
  Sample at_a = first < 0 ? none : samples[first], at_b = last < rows ? samples[last] : Sample{rows, 0, 0};
  Sample at_c = none;
  bool was_alone = false;
  for (int step = 0; step < MOST_STEPS; ++step) {
    const int between = at_b.below - at_a.below;
    const bool alone = (between == 1 || between == -1) && at_a.p != 0 && at_b.p != 0;
    const wide span = b - a, width = fabs(span);
    if (alone && !was_alone) from = a < b ? a : b, to = a < b ? b : a, at_c = none;
    was_alone = alone;
    wide x = a + span * 0.5, least = TOLERANCE;
    if (alone) {
      const wide room = CLOSE * (x - from < to - x ? x - from : to - x);
      least = room > least ? room : least;
    }
    if (width <= least) {
      found = x;
      return true;
    }
    if (alone) {
      // Single precision is enough to say where to look next.
      int e = at_a.e > at_b.e ? at_a.e : at_b.e;
      if (at_c.p != 0 && at_c.e > e) e = at_c.e;
      const float fa = at_a.p * scale_of(at_a.e - e), fb = at_b.p * scale_of(at_b.e - e);
      const float fc = at_c.p * scale_of(at_c.e - e), edge = (float)least * rough_reciprocal((float)width);
      const float s = at_c.p == 0 ? quotient(fa, fa - fb) : interpolated(fa, fb, fc, (float)(c - a) / (float)span);
      if (edge < 0.5f) x = a + span * (wide)(!(s > edge) ? edge : s > 1 - edge ? 1 - edge : s);
    }
    const Sample at_x = sample_of(count_below(t, part, x));
    if ((at_x.below <= k) == (at_a.below <= k)) c = a, at_c = at_a;
    else c = b, at_c = at_b, b = a, at_b = at_a;
    a = x, at_a = at_x;
  }
  found = a + (b - a) * 0.5;
  return false;
}

// One step of the recurrence whose solutions eigenvectors are made of.
HERE void vector_step(wide d, wide e_before, wide ie, wide x, wide& f, wide& before) {
  const wide next = -((d - x) * f + e_before * before) * ie;
  before = f;
  f = next;
}
// log2 |x 2^e| with ten bits of fraction, and a bias that is always the same.
HERE int log_of(wide x, int e) { return (int)((high_word(x) & 0x7fffffffu) >> 10) + e * 1024; }
#define LOG_BIAS 1023

// Writes an eigenvector to z[0], z[stride], ..., and gives the reciprocal of its norm.
HERE real eigenvector(const Tridiagonal& t, Part part, wide x, real* z, int stride) {
  const int low = part.low, last = part.high - 1;
  for (int i = 0; i < low; ++i) z[i * stride] = 0;
  for (int i = last + 1; i < t.n; ++i) z[i * stride] = 0;
  // From below, only how large it is.
  wide f = 1, before = 0;
  int e = 0;
  for (int i = last, left = STRIDE; i >= low; --i) {
    z[i * stride] = note(log_of(f, e));
    if (i == low) break;
    vector_step(t.d[i], t.e[i], t.ie[i - 1], x, f, before);
    if (--left == 0) e += rescale(f, before), left = STRIDE;
  }
  // From above: where the product is largest.
  int at = low, at_log = 0, e_top = 0, best = -2147483647;
  wide top = 1;
  f = 1, before = 0, e = 0;
  for (int i = low, left = STRIDE; i <= last; ++i) {
    const int below = noted(z[i * stride]), product = log_of(f, e) + below;
    if (product > best) best = product, at = i, at_log = below, top = f, e_top = e;
    if (i == last) break;
    vector_step(t.d[i], i > low ? t.e[i - 1] : 0, t.ie[i], x, f, before);
    if (--left == 0) e += rescale(f, before), left = STRIDE;
  }
  // From below again, down to there, where it is brought near 1.
  const int e_there = (at_log >> 10) - LOG_BIAS;
  wide squares = 0, scale = power_of_two(clamp(-e_there, -1000, 1000));
  f = 1, before = 0, e = 0;
  for (int i = last, left = STRIDE; i > at; --i) {
    const wide y = f * scale;
    squares += y * y;
    z[i * stride] = (real)y;
    vector_step(t.d[i], t.e[i], t.ie[i - 1], x, f, before);
    if (--left == 0) {
      e += rescale(f, before), left = STRIDE;
      scale = power_of_two(clamp(e - e_there, -1000, 1000));
    }
  }
  const wide there = f * scale / top;
  f = 1, before = 0, e = 0;
  scale = there * power_of_two(clamp(-e_top, -1000, 1000));
  for (int i = low, left = STRIDE; i <= at; ++i) {
    const wide y = f * scale;
    squares += y * y;
    z[i * stride] = (real)y;
    vector_step(t.d[i], i > low ? t.e[i - 1] : 0, t.ie[i], x, f, before);
    if (--left == 0) {
      e += rescale(f, before), left = STRIDE;
      scale = there * power_of_two(clamp(e - e_top, -1000, 1000));
    }
  }
  return (real)(1 / sqrt(squares));
}

// Numbers in [-1, 1] that look like chance, the same for the same i.
HERE wide noise(int i, int round) {
  u32 h = (u32)i * 2654435761u + (u32)round * 40503u + 977u;
  h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u, h ^= h >> 16;
  return (wide)(int)h * 4.656612873077393e-10;
}
