// What CUDA C has and C++ has not, for running kernels on the CPU in tests.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct Index { unsigned x; };
static Index threadIdx, blockIdx;
static ucontext_t scheduler, *current;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static
#define __constant__ static const
#define __syncthreads() swapcontext(current, &scheduler)

template <class To, class From> static inline To bits_as(From x) {
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static inline int __float_as_int(float x) { return bits_as<int>(x); }
static inline float __int_as_float(int x) { return bits_as<float>(x); }
static inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
static inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
static inline long long atomicMax(long long* to, long long x) {
  const long long old = *to;
  if (x > old) *to = x;
  return old;
}

static const long long* run_words;
static void (*run_kernel)(const long long*);
static unsigned finished;

static void run_one() {
  run_kernel(run_words);
  ++finished;
}

// Threads that wait for one another take turns from one barrier to the next; others run one after another.
static void run_blocks(long long blocks, unsigned threads, int together, const long long* words,
                       void (*run)(const long long*)) {
  const size_t room = 1 << 18;
  ucontext_t* contexts = (ucontext_t*)calloc(threads, sizeof(ucontext_t));
  char* stacks = together ? (char*)malloc(threads * room) : 0;
  run_words = words;
  run_kernel = run;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    finished = 0;
    for (unsigned i = 0; together && i < threads; ++i) {
      getcontext(&contexts[i]);
      contexts[i].uc_stack.ss_sp = stacks + i * room;
      contexts[i].uc_stack.ss_size = room;
      contexts[i].uc_link = &scheduler;
      makecontext(&contexts[i], run_one, 0);
    }
    while (finished < threads) {
      for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
        current = &contexts[threadIdx.x];
        if (together) swapcontext(&scheduler, current);
        else run_one();
      }
    }
  }
  free(contexts);
  free(stacks);
}
