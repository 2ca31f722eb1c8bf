/* Networks in 512-bit registers with vpdpwssd, two products and two additions at once. */
#include <stddef.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define NETWORK(part) network_vnni_##part
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define WORD_BYTES 64
#define ADD_HALVES(a, b) (W)_mm512_add_epi16((__m512i)(a), (__m512i)(b))
#define MAX_HALVES(a, b) (W)_mm512_max_epi16((__m512i)(a), (__m512i)(b))
#define MIN_HALVES(a, b) (W)_mm512_min_epi16((__m512i)(a), (__m512i)(b))
#define MULTIPLY_PAIRS(sum, x, w) (W)_mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(x), (__m512i)(w))
#define NEGATIVES(x) (uint64_t)_mm512_movepi32_mask((__m512i)(x))
#include "network.inc"

const network_kernel *network_vnni(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512vnni")
               ? &network_vnni_kernel
               : NULL;
}
#else
#include "network_kernel.inc"
const network_kernel *network_vnni(void) { return NULL; }
#endif
