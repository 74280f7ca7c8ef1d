// Loops that show what a CPU can do at most: arithmetic on registers, streams over memory.
//
// Vector extensions of GCC and Clang are used instead of autovectorisation, so that no compiler
// turns a copy into memcpy (which switches to non-temporal stores) or drops a chain. Link without
// -ffast-math: older GCCs would then flush denormals in the whole process that loads the library.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>
#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__SSE__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kChains = 16;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
constexpr int kChains = 12;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kChains = 20;
#else
constexpr int kVectorBytes = 16;
constexpr int kChains = 12;
#endif

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;
using Floats = Vector<float>;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pin(int cpu) {
#if defined(__linux__)
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
  (void)cpu;
#endif
}

class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}
  void wait() {
    const int turn = turn_.load();
    if (waiting_.fetch_add(1) + 1 == count_) {
      waiting_.store(0);
      turn_.fetch_add(1);
      return;
    }
    for (int spins = 0; turn_.load() == turn; ++spins)
      if (spins > 2000) std::this_thread::yield();
  }

 private:
  const int count_;
  std::atomic<int> waiting_{0}, turn_{0};
};

// Runs work(thread) on every thread `trials` times after one warm-up; seconds from the first start
// to the last end go to `out`. Trials that have not begun after `limit` seconds are left out (their
// seconds stay 0). prepare(thread) runs first, on the thread that will do the work, so
// that its memory is near.
template <class Prepare, class Work>
void run_threads(int threads, const int* cpus, int trials, double limit, double* out,
                 Prepare prepare, Work work) {
  Barrier barrier(threads);
  std::atomic<bool> late{false};
  double begin = 0;
  for (int i = 0; i < trials; ++i) out[i] = 0;
  std::vector<double> start(threads), end(threads);
  auto body = [&](int thread) {
    pin(cpus ? cpus[thread] : -1);
    prepare(thread);
    for (int trial = -1; trial < trials; ++trial) {
      barrier.wait();
      if (late) return;
      if (thread == 0 && trial < 0) begin = now();
      start[thread] = now();
      work(thread);
      end[thread] = now();
      barrier.wait();
      if (thread == 0 && trial >= 0) {
        double first = start[0], last = end[0];
        for (int i = 1; i < threads; ++i) {
          if (start[i] < first) first = start[i];
          if (end[i] > last) last = end[i];
        }
        out[trial] = last - first;
        late = last - begin > limit;
      }
    }
  };
  // The caller's own affinity is left alone.
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) pool.emplace_back(body, i);
  for (auto& thread : pool) thread.join();
}

template <class V>
inline void keep(V& value) {
#if defined(__AVX512F__)
  // Any of the 32 registers, not the first 16 alone.
  asm volatile("" : "+v"(value));
#elif defined(__x86_64__)
  asm volatile("" : "+x"(value));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(value));
#else
  asm volatile("" : "+m"(value));
#endif
}

inline void forget_memory() { asm volatile("" ::: "memory"); }

template <class T>
Vector<T> broadcast(T value) {
  Vector<T> v;
  for (size_t i = 0; i < sizeof(v) / sizeof(T); ++i) v[i] = value;
  return v;
}

enum Operation { kMultiplyAdd = 0, kMultiply = 1, kAdd = 2 };

template <class T, int operation>
inline void advance(Vector<T>& value, const Vector<T>& factor, const Vector<T>& summand) {
  if (operation == kMultiplyAdd) value = value * factor + summand;
  if (operation == kMultiply) value = value * factor;
  if (operation == kAdd) value = value + summand;
  keep(value);
}

// Independent chains in registers; factor 1 and summand 0 are only known at run time. The chains
// are an index pack, not a loop: an array that a loop indexes would be spilled to the stack.
template <class T, int operation, size_t... i>
void chains(int64_t rounds, T factor, T summand, std::index_sequence<i...>) {
  Vector<T> value[] = {broadcast(T(i + 1))...};
  Vector<T> a = broadcast(factor), b = broadcast(summand);
  for (int64_t round = 0; round < rounds; ++round) {
    // In registers: GCC would load the factor from the stack for each chain.
    keep(a);
    keep(b);
    (advance<T, operation>(value[i], a, b), ...);
  }
}

template <class T, int operation>
void run_chains(int64_t rounds, int threads, const int* cpus, int trials, double limit,
                double* out) {
  volatile int one = 1, zero = 0;
  const T factor = T(one), summand = T(zero);
  run_threads(
      threads, cpus, trials, limit, out, [](int) {},
      [=](int) {
        chains<T, operation>(rounds, factor, summand, std::make_index_sequence<kChains>());
      });
}

template <class T>
void run_chains(int operation, int64_t rounds, int threads, const int* cpus, int trials,
                double limit, double* out) {
  if (operation == kMultiplyAdd)
    run_chains<T, kMultiplyAdd>(rounds, threads, cpus, trials, limit, out);
  if (operation == kMultiply) run_chains<T, kMultiply>(rounds, threads, cpus, trials, limit, out);
  if (operation == kAdd) run_chains<T, kAdd>(rounds, threads, cpus, trials, limit, out);
}

struct Streams {
  Floats *a = nullptr, *b = nullptr, *c = nullptr;
  int64_t count = 0;
  void* owned = nullptr;
  ~Streams() { std::free(owned); }
};

// `arrays` arrays of `bytes` each, set a few lines apart so that they do not meet in one cache set.
bool allocate(Streams& streams, int arrays, int64_t bytes) {
  const int64_t gap = 5 * 64;
  const int64_t each = (bytes + 63) / 64 * 64 + gap;
  if (posix_memalign(&streams.owned, 4096, each * arrays)) return false;
  std::memset(streams.owned, 0, each * arrays);
  char* start = static_cast<char*>(streams.owned);
  streams.a = reinterpret_cast<Floats*>(start);
  if (arrays > 1) streams.b = reinterpret_cast<Floats*>(start + each);
  if (arrays > 2) streams.c = reinterpret_cast<Floats*>(start + 2 * each);
  streams.count = bytes / kVectorBytes / 8 * 8;
  return true;
}

void read(const Streams& s) {
  Floats sum[8] = {};
  for (int64_t i = 0; i < s.count; i += 8)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) sum[j] += s.a[i + j];
  for (int j = 0; j < 8; ++j) keep(sum[j]);
}

void load(const Streams& s) {
  for (int64_t i = 0; i < s.count; i += 8)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      Floats value = s.a[i + j];
      keep(value);
    }
}

void write(const Streams& s) {
  Floats value = broadcast(1.0f);
  keep(value);
  for (int64_t i = 0; i < s.count; i += 8)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) s.a[i + j] = value;
}

void copy(const Streams& s) {
  for (int64_t i = 0; i < s.count; i += 8)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      Floats value = s.b[i + j];
      keep(value);
      s.a[i + j] = value;
    }
}

void triad(const Streams& s) {
  Floats scale = broadcast(1.0f);
  keep(scale);
  for (int64_t i = 0; i < s.count; i += 4)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) s.a[i + j] = s.b[i + j] + scale * s.c[i + j];
}

void update(const Streams& s) {
  Floats scale = broadcast(1.0f);
  keep(scale);
  for (int64_t i = 0; i < s.count; i += 8)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) s.a[i + j] = s.a[i + j] * scale;
}

#if defined(__clang__)
constexpr bool kNonTemporal = true;
inline void stream(Floats* to, Floats value) { __builtin_nontemporal_store(value, to); }
#elif defined(__AVX512F__)
constexpr bool kNonTemporal = true;
inline void stream(Floats* to, Floats value) {
  _mm512_stream_ps(reinterpret_cast<float*>(to), (__m512)value);
}
#elif defined(__AVX__)
constexpr bool kNonTemporal = true;
inline void stream(Floats* to, Floats value) {
  _mm256_stream_ps(reinterpret_cast<float*>(to), (__m256)value);
}
#elif defined(__SSE__)
constexpr bool kNonTemporal = true;
inline void stream(Floats* to, Floats value) {
  _mm_stream_ps(reinterpret_cast<float*>(to), (__m128)value);
}
#else
constexpr bool kNonTemporal = false;
inline void stream(Floats* to, Floats value) { *to = value; }
#endif

void copy_nontemporal(const Streams& s) {
  for (int64_t i = 0; i < s.count; i += 8)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) stream(s.a + i + j, s.b[i + j]);
#if defined(__SSE__)
  _mm_sfence();
#endif
}

// exp by x = n ln 2 + r, |r| <= ln 2 / 2, a polynomial in r and the exponent field: what a good
// library does. Adding `magic` leaves n in the low bits of the mantissa.
template <class T, class I>
struct Exp;
template <>
struct Exp<float, int32_t> {
  static constexpr float magic = 12582912.0f, high = 0.693359375f, low = -2.12194440e-4f;
  static constexpr int degree = 6, mantissa = 23;
};
template <>
struct Exp<double, int64_t> {
  static constexpr double magic = 6755399441055744.0, high = 0.693145751953125,
                          low = 1.42860682030941723212e-6;
  static constexpr int degree = 11, mantissa = 52;
};

template <class T, class I>
void exponentials(T* to, const T* from, int64_t count, const T* coefficients) {
  using E = Exp<T, I>;
  const Vector<T> log2e = broadcast(T(1.4426950408889634)), magic = broadcast(T(E::magic)),
                  high = broadcast(T(E::high)), low = broadcast(T(E::low));
  Vector<T> c[E::degree + 1];
  for (int i = 0; i <= E::degree; ++i) c[i] = broadcast(coefficients[i]);
  const int64_t lanes = kVectorBytes / sizeof(T);
  for (int64_t i = 0; i < count; i += lanes) {
    const Vector<T> x = *reinterpret_cast<const Vector<T>*>(from + i);
    const Vector<T> shifted = x * log2e + magic;
    const Vector<T> n = shifted - magic;
    const Vector<T> r = (x - n * high) - n * low;
    Vector<T> p = c[E::degree];
#pragma GCC unroll 16
    for (int k = E::degree - 1; k >= 0; --k) p = p * r + c[k];
    *reinterpret_cast<Vector<T>*>(to + i) =
        (Vector<T>)((Vector<I>)p + ((Vector<I>)shifted << I(E::mantissa)));
  }
}

constexpr int64_t kExpElements = 1024;

template <class T, class I>
void run_exponentials(int64_t rounds, int threads, const int* cpus, int trials, double limit,
                      double* out) {
  T coefficients[Exp<T, I>::degree + 1];
  double factorial = 1;
  for (int k = 0; k <= Exp<T, I>::degree; ++k) {
    if (k) factorial *= k;
    coefficients[k] = T(1 / factorial);
  }
  run_threads(
      threads, cpus, trials, limit, out, [](int) {},
      [&](int) {
        alignas(64) T from[kExpElements], to[kExpElements];
        for (int i = 0; i < kExpElements; ++i) from[i] = T(i % 64) / 8 - 4;
        for (int64_t round = 0; round < rounds; ++round) {
          exponentials<T, I>(to, from, kExpElements, coefficients);
          forget_memory();
        }
        volatile T used = to[7];
        (void)used;
      });
}

}  // namespace

extern "C" {

// Lanes x chains: operations per round of one thread are this many (times two for multiply-add).
int64_t gobrrr_operations_per_round(int element_bytes) {
  return int64_t(kVectorBytes) / element_bytes * kChains;
}

int gobrrr_vector_bytes() { return kVectorBytes; }

// type: 0 float32, 1 float64, 2 float16 (where the CPU computes in it), 3.. int8, int16, int32,
// int64. Returns 0, or -1 if this CPU or compiler has no such arithmetic.
int gobrrr_chains(int type, int operation, int64_t rounds, int threads, const int* cpus, int trials,
                  double limit, double* out) {
  switch (type) {
    case 0:
      run_chains<float>(operation, rounds, threads, cpus, trials, limit, out);
      return 0;
    case 1:
      run_chains<double>(operation, rounds, threads, cpus, trials, limit, out);
      return 0;
#if defined(__AVX512FP16__) || defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
    case 2:
      run_chains<_Float16>(operation, rounds, threads, cpus, trials, limit, out);
      return 0;
#endif
    case 3:
      run_chains<int8_t>(operation, rounds, threads, cpus, trials, limit, out);
      return 0;
    case 4:
      run_chains<int16_t>(operation, rounds, threads, cpus, trials, limit, out);
      return 0;
    case 5:
      run_chains<int32_t>(operation, rounds, threads, cpus, trials, limit, out);
      return 0;
    case 6:
      run_chains<int64_t>(operation, rounds, threads, cpus, trials, limit, out);
      return 0;
  }
  return -1;
}

int64_t gobrrr_exp_elements() { return kExpElements; }

int gobrrr_exp(int type, int64_t rounds, int threads, const int* cpus, int trials, double limit,
               double* out) {
  if (type == 0)
    run_exponentials<float, int32_t>(rounds, threads, cpus, trials, limit, out);
  else if (type == 1)
    run_exponentials<double, int64_t>(rounds, threads, cpus, trials, limit, out);
  else
    return -1;
  return 0;
}

// For tests: exp of `count` float32 values (a multiple of 16).
void gobrrr_exp_values(const float* from, float* to, int64_t count) {
  float coefficients[7] = {1, 1, 1 / 2.f, 1 / 6.f, 1 / 24.f, 1 / 120.f, 1 / 720.f};
  alignas(64) float in[16], out[16];
  for (int64_t i = 0; i < count; i += 16) {
    std::memcpy(in, from + i, sizeof in);
    exponentials<float, int32_t>(out, in, 16, coefficients);
    std::memcpy(to + i, out, sizeof out);
  }
}

// kind: 0 read (sum), 1 write, 2 copy, 3 triad, 4 copy with non-temporal stores, 5 load, 6 update
// in place. `bytes` is the working set of one thread, all its arrays together; `moved` gets the
// bytes that all threads read and write in one pass. Returns 0, -1 if this CPU or compiler has no
// such loop, -2 without memory.
int gobrrr_stream(int kind, int64_t bytes, int64_t passes, int threads, const int* cpus, int trials,
                  double limit, double* out, int64_t* moved) {
  void (*const loops[])(const Streams&) = {read, write, copy, triad, copy_nontemporal,
                                           load, update};
  const int arrays_of[] = {1, 1, 2, 3, 2, 1, 1}, touches_of[] = {1, 1, 2, 3, 2, 1, 2};
  if (kind < 0 || kind > 6 || (kind == 4 && !kNonTemporal)) return -1;
  const int arrays = arrays_of[kind];
  std::vector<Streams> streams(threads);
  std::atomic<bool> failed{false};
  auto loop = loops[kind];
  run_threads(
      threads, cpus, trials, limit, out,
      [&](int thread) {
        if (!allocate(streams[thread], arrays, bytes / arrays)) failed = true;
      },
      [&](int thread) {
        if (failed) return;
        for (int64_t pass = 0; pass < passes; ++pass) {
          loop(streams[thread]);
          forget_memory();
        }
      });
  if (failed) return -2;
  *moved = streams[0].count * kVectorBytes * touches_of[kind] * threads;
  return 0;
}

}  // extern "C"
