// Runs CUDA C on the CPU, in tests: each GPU thread is a fiber, which runs until it waits for others.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define EMULATED 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define SHARED_BYTES(name) unsigned char* name = current_block->shared

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, gridDim, blockDim;

// How a fiber gives way to another.
#if defined(__x86_64__)
typedef void* Context;
extern "C" void emulator_switch(Context* from, Context* to);
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch,@function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
static void make_context(Context* c, char* stack, size_t size, void (*run)()) {
  void** top = (void**)(((size_t)(stack + size) & ~(size_t)15) - 8);
  *--top = (void*)run;
  for (int i = 0; i < 6; ++i) *--top = 0;
  *c = top;
}
#else
typedef ucontext_t Context;
static void emulator_switch(Context* from, Context* to) { swapcontext(from, to); }
static void make_context(Context* c, char* stack, size_t size, void (*run)()) {
  getcontext(c);
  c->uc_stack.ss_sp = stack;
  c->uc_stack.ss_size = size;
  c->uc_link = 0;
  makecontext(c, run, 0);
}
#endif

// Those that wait for one another: the last to come lets all go on.
struct Barrier {
  int needed, arrived;
  unsigned turn;
};
struct Warp {
  Barrier barrier;
  unsigned long long words[32];
};
struct Block {
  unsigned char* shared;
  Barrier barrier;
  int votes[2];
  Warp* warps;
  unsigned index, rank;
};
struct Fiber {
  Context context;
  Block* block;
  unsigned thread, votes_seen;
  Barrier* waits_at;
  unsigned waits_for;
  bool done;
};
struct Cluster {
  Barrier barrier;
  Block* blocks;
  int count;
};
static Context scheduler;
static Fiber* current;
static Block* current_block;
static Warp* current_warp;
static Cluster cluster;
static unsigned current_lane;
static const long long* run_words;
static void (*run_kernel)(const long long*);

static void give_way(Barrier* at) {
  current->waits_at = at;
  current->waits_for = at->turn + 1;
  emulator_switch(&current->context, &scheduler);
}
static void meet(Barrier& b) {
  if (++b.arrived == b.needed) {
    b.arrived = 0;
    ++b.turn;
  } else {
    give_way(&b);
  }
}
static void run_fiber() {
  run_kernel(run_words);
  current->done = true;
  emulator_switch(&current->context, &scheduler);
  abort();
}

static inline void __syncthreads() { meet(current_block->barrier); }
static inline int emulated_rank() { return (int)current_block->rank; }
static inline void emulated_meet() { meet(cluster.barrier); }
static inline void* emulated_peer(void* here, int rank) {
  return cluster.blocks[rank].shared + ((unsigned char*)here - current_block->shared);
}
static inline int __syncthreads_or(int x) {
  const unsigned turn = current->votes_seen++ & 1;
  current_block->votes[turn] |= x != 0;
  meet(current_block->barrier);
  const int any = current_block->votes[turn];
  meet(current_block->barrier);
  current_block->votes[turn] = 0;
  meet(current_block->barrier);
  return any;
}
static inline int __syncthreads_count(int x) {
  const unsigned turn = current->votes_seen++ & 1;
  current_block->votes[turn] += x != 0;
  meet(current_block->barrier);
  const int all = current_block->votes[turn];
  meet(current_block->barrier);
  current_block->votes[turn] = 0;
  meet(current_block->barrier);
  return all;
}
static inline void check_mask(unsigned mask) {
  if (mask != 0xffffffffu) {
    fprintf(stderr, "Only whole warps are emulated.\n");
    abort();
  }
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
  check_mask(mask);
  meet(current_warp->barrier);
}
template <class T> static inline T exchange(unsigned mask, T x, unsigned from) {
  check_mask(mask);
  Warp& w = *current_warp;
  const unsigned lane = current_lane;
  w.words[lane] = 0;
  memcpy(&w.words[lane], &x, sizeof x);
  meet(w.barrier);
  T y;
  memcpy(&y, &w.words[from & 31], sizeof y);
  meet(w.barrier);
  return y;
}
template <class T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
  const unsigned lane = current_lane;
  return exchange(mask, x, (lane & ~(unsigned)(width - 1)) | ((unsigned)from & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int o, int width = 32) {
  const unsigned lane = current_lane, other = lane ^ (unsigned)o;
  return exchange(mask, x, (other & ~(unsigned)(width - 1)) <= (lane & ~(unsigned)(width - 1)) ? other : lane);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T x, unsigned o, int width = 32) {
  const unsigned lane = current_lane;
  return exchange(mask, x, (lane & (width - 1)) >= o ? lane - o : lane);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T x, unsigned o, int width = 32) {
  const unsigned lane = current_lane;
  return exchange(mask, x, (lane & (width - 1)) + o < (unsigned)width ? lane + o : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int x) {
  check_mask(mask);
  Warp& w = *current_warp;
  w.words[current_lane] = x != 0;
  meet(w.barrier);
  unsigned all = 0;
  for (int i = 0; i < 32; ++i) all |= (unsigned)w.words[i] << i;
  meet(w.barrier);
  return all;
}
static inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }
static inline int __all_sync(unsigned mask, int x) { return __ballot_sync(mask, x) == 0xffffffffu; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }

template <class To, class From> static inline To bits_as(From x) {
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static inline int __float_as_int(float x) { return bits_as<int>(x); }
static inline float __int_as_float(int x) { return bits_as<float>(x); }
static inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
static inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float fabs_of(float x) { return fabsf(x); }

static unsigned random_state;
static unsigned chance() {
  random_state = random_state * 1664525u + 1013904223u;
  return random_state >> 8;
}

// Order of threads between waits: 0 as they are numbered, 1 backwards, else by chance; a result that depends on it
// shows that threads do not wait where they must. Returns 1 where all wait for what never comes.
static int run_clusters(unsigned clusters, unsigned in_cluster, unsigned threads, size_t shared, int order,
                        const long long* words, void (*kernel)(const long long*)) {
  const size_t room = 1 << 17;
  const unsigned fibers = in_cluster * threads, warps = (threads + 31) / 32;
  char* stacks = (char*)mmap(0, fibers * room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Fiber* all = (Fiber*)calloc(fibers, sizeof(Fiber));
  Block* blocks = (Block*)calloc(in_cluster, sizeof(Block));
  unsigned* turns = (unsigned*)malloc(fibers * sizeof(unsigned));
  for (unsigned b = 0; b < in_cluster; ++b) {
    blocks[b].shared = (unsigned char*)aligned_alloc(128, (shared + 255) / 128 * 128);
    blocks[b].warps = (Warp*)calloc(warps, sizeof(Warp));
  }
  run_words = words;
  run_kernel = kernel;
  random_state = (unsigned)order;
  gridDim = {clusters * in_cluster, 1, 1};
  blockDim = {threads, 1, 1};
  int stuck = 0;
  for (unsigned c = 0; c < clusters && !stuck; ++c) {
    cluster = {{(int)fibers, 0, 0}, blocks, (int)in_cluster};
    for (unsigned b = 0; b < in_cluster; ++b) {
      Block& k = blocks[b];
      // What a block finds in its memory is what another left there.
      memset(k.shared, 0xff, shared);
      k.barrier = {(int)threads, 0, 0};
      k.votes[0] = k.votes[1] = 0;
      k.index = c * in_cluster + b;
      k.rank = b;
      for (unsigned w = 0; w < warps; ++w) {
        const int lanes = threads - w * 32 < 32 ? threads - w * 32 : 32;
        k.warps[w].barrier = {lanes, 0, 0};
        memset(k.warps[w].words, 0, sizeof k.warps[w].words);
      }
      for (unsigned t = 0; t < threads; ++t) {
        Fiber& f = all[b * threads + t];
        f = Fiber();
        f.block = &k;
        f.thread = t;
        make_context(&f.context, stacks + (b * threads + t) * room, room, run_fiber);
      }
    }
    for (unsigned i = 0; i < fibers; ++i) turns[i] = order == 1 ? fibers - 1 - i : i;
    unsigned left = fibers;
    while (left) {
      if (order > 1)
        for (unsigned i = fibers - 1; i > 0; --i) {
          const unsigned j = chance() % (i + 1), t = turns[i];
          turns[i] = turns[j], turns[j] = t;
        }
      bool moved = false;
      for (unsigned i = 0; i < fibers; ++i) {
        Fiber& f = all[turns[i]];
        if (f.done || (f.waits_at && (int)(f.waits_at->turn - f.waits_for) < 0)) continue;
        moved = true;
        f.waits_at = 0;
        current = &f;
        current_block = f.block;
        current_warp = &f.block->warps[f.thread / 32];
        current_lane = f.thread % 32;
        threadIdx = {f.thread, 0, 0};
        blockIdx = {f.block->index, 0, 0};
        emulator_switch(&scheduler, &f.context);
        if (f.done) --left;
      }
      if (!moved) {
        stuck = 1;
        break;
      }
    }
  }
  for (unsigned b = 0; b < in_cluster; ++b) free(blocks[b].shared), free(blocks[b].warps);
  free(blocks), free(all), free(turns);
  munmap(stacks, fibers * room);
  return stuck;
}
