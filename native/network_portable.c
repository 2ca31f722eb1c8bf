/* Networks on any processor; on x86-64 with the vectors that all of them have. */
#define NETWORK(part) network_portable_##part
#define TARGET
#define WORD_BYTES 16
#if defined(__SSE2__)
#include <emmintrin.h>
#define ADD_HALVES(a, b) (W)_mm_add_epi16((__m128i)(a), (__m128i)(b))
#define MAX_HALVES(a, b) (W)_mm_max_epi16((__m128i)(a), (__m128i)(b))
#define MIN_HALVES(a, b) (W)_mm_min_epi16((__m128i)(a), (__m128i)(b))
#define SUBTRACT_HALVES(a, b) (W)_mm_subs_epu16((__m128i)(a), (__m128i)(b))
#define MULTIPLY_PAIRS(sum, x, w) ((sum) + (W)_mm_madd_epi16((__m128i)(x), (__m128i)(w)))
#define NEGATIVES(x) (uint64_t)(uint32_t)_mm_movemask_ps((__m128)(x))
#endif
#include "network.inc"

const network_kernel *network_portable(void) { return &network_portable_kernel; }
