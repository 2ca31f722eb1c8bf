/* Networks in 256-bit registers. */
#include <stddef.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define NETWORK(part) network_avx2_##part
#define TARGET __attribute__((target("avx2")))
#define WORD_BYTES 32
#define ADD_HALVES(a, b) (W)_mm256_add_epi16((__m256i)(a), (__m256i)(b))
#define MAX_HALVES(a, b) (W)_mm256_max_epi16((__m256i)(a), (__m256i)(b))
#define MIN_HALVES(a, b) (W)_mm256_min_epi16((__m256i)(a), (__m256i)(b))
#define SUBTRACT_HALVES(a, b) (W)_mm256_subs_epu16((__m256i)(a), (__m256i)(b))
#define MULTIPLY_PAIRS(sum, x, w) ((sum) + (W)_mm256_madd_epi16((__m256i)(x), (__m256i)(w)))
#define NEGATIVES(x) (uint64_t)(uint32_t)_mm256_movemask_ps((__m256)(x))
#include "network.inc"

const network_kernel *network_avx2(void) { return __builtin_cpu_supports("avx2") ? &network_avx2_kernel : NULL; }
#else
#include "network_kernel.inc"
const network_kernel *network_avx2(void) { return NULL; }
#endif
