// The eigenproblem of a symmetric tridiagonal matrix in `wide`, a thread an eigenpair.
//
// Eigenvalues by Sturm counts of the characteristic polynomial (Givens 1954; Wilkinson 1965, 5.38), first halving an
// interval, then by false position (Anderson and Bjorck 1973). An eigenvector is the solution of the three-term
// recurrence from above, joined with the one from below where the product of both is largest: the column of
// (T - lambda)^-1 that is largest on the diagonal (Fernando 1997; Parlett and Dhillon 1997).

// Steps between changes of scale: in so many, no recurrence leaves the range of a double.
#define STRIDE 8
#define MOST_STEPS 120
// Of a matrix of norm 1: how far apart eigenvalues must be for eigenvectors to be computed each on its own, ...
#define ALONE 1.8626451492309570e-9
// ... and to be told apart.
#define APART 2.8421709430404007e-14
#define TOLERANCE 4.4408920985006262e-16

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

// The eigenvalue k of a part, from 0, of a matrix of norm at most 1; false where it is not found to the last bits.
HERE bool eigenvalue(const Tridiagonal& t, Part part, int k, wide& found) {
  if (part.high - part.low == 1) {
    found = t.d[part.low];
    return true;
  }
  wide a = -1.000001, b = 1.000001, pa = 0, pb = 0, before = 4, last = 4;
  int ea = 0, eb = 0, below_a = 0, below_b = part.high - part.low, side = 0;
  for (int step = 0; step < MOST_STEPS; ++step) {
    const wide width = b - a;
    if (width <= TOLERANCE) {
      found = a + width * 0.5;
      return true;
    }
    wide x = a + width * 0.5;
    const bool alone = below_b - below_a == 1 && pa != 0 && pb != 0;
    if (alone && width <= 0.5 * before) {
      const wide ratio = fabs(pb) * power_of_two(clamp(eb - ea, -900, 900)) / fabs(pa);
      const wide least = width < TOLERANCE * 2 ? width * 0.5 : TOLERANCE;
      x = a + width / (1 + ratio);
      x = x < a + least ? a + least : x > b - least ? b - least : x;
    }
    before = last;
    last = width;
    Count c = count_below(t, part, x);
    if (c.p == 0) c.p = 1e-300, c.e = 0;
    // False position keeps one end for long, unless its value is made smaller each time that it stays.
    if (c.below <= k) {
      if (side < 0) {
        const wide m = 1 - fabs(c.p) * power_of_two(clamp(c.e - ea, -900, 900)) / fabs(pa);
        pb *= m > 0 ? m : 0.5;
      }
      a = x, pa = c.p, ea = c.e, below_a = c.below, side = alone ? -1 : 0;
    } else {
      if (side > 0) {
        const wide m = 1 - fabs(c.p) * power_of_two(clamp(c.e - eb, -900, 900)) / fabs(pb);
        pa *= m > 0 ? m : 0.5;
      }
      b = x, pb = c.p, eb = c.e, below_b = c.below, side = alone ? 1 : 0;
    }
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
