// y = x with `repeats` multiplications or multiply-adds applied to each element.
//
// kChains vectors are kept in registers at once, so that many independent chains are in flight: with
// one, each operation waits for the one before it. The count is an argument and the loop over it is
// inside, so one compilation serves every count. Vector extensions instead of autovectorisation, and
// factors that come in as arguments: no compiler folds a chain.

#include <cstdint>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define MANY 12
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define MANY 10
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define MANY 16
#else
#define VECTOR_BYTES 16
#define MANY 10
#endif

typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));

namespace {

template <int kChains, bool kAdd>
void run(const float* x, float* y, int64_t vectors, int64_t repeats, float factor, float term,
         int threads) {
  const Floats a = factor - Floats{}, b = term - Floats{};
  const Floats* from = reinterpret_cast<const Floats*>(x);
  Floats* to = reinterpret_cast<Floats*>(y);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t block = 0; block < vectors / kChains; ++block) {
    Floats c[kChains];
    for (int i = 0; i < kChains; ++i) c[i] = from[block * kChains + i];
    for (int64_t step = 0; step < repeats; ++step)
#pragma GCC unroll 16
      for (int i = 0; i < kChains; ++i) c[i] = kAdd ? c[i] * a + b : c[i] * a;
    for (int i = 0; i < kChains; ++i) to[block * kChains + i] = c[i];
  }
}

}  // namespace

extern "C" {

// Elements must be a multiple of this, pointers aligned to VECTOR_BYTES.
int64_t lab_granule() { return VECTOR_BYTES / 4 * MANY; }
int lab_chains() { return MANY; }

void lab_run(const float* x, float* y, int64_t n, int64_t repeats, float factor, float term,
             int multiply_add, int independent, int threads) {
  const int64_t vectors = n / (VECTOR_BYTES / 4);
  if (independent && multiply_add) run<MANY, true>(x, y, vectors, repeats, factor, term, threads);
  else if (independent) run<MANY, false>(x, y, vectors, repeats, factor, term, threads);
  else if (multiply_add) run<1, true>(x, y, vectors, repeats, factor, term, threads);
  else run<1, false>(x, y, vectors, repeats, factor, term, threads);
}
}
