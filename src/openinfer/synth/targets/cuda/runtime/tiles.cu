//: oi_piece
/* The 16-byte piece of a row that begins with a term. Pieces are swizzled: their index is XORed with row modulo 8. */
template <typename T> static __device__ __forceinline__ T *oi_piece(T *tile, uint32_t row, uint32_t term)
{
    const uint32_t bytes = uint32_t(sizeof(T)), piece = term * bytes / 16u;
    return tile + row * (128u / bytes) + (piece ^ (row & 7u)) * (16u / bytes);
}

//: oi_tile
/* The descriptor of a tile for matrix units: its address, and the strides and swizzling of rows of 128 bytes. */
template <typename T> static __device__ __forceinline__ uint64_t oi_tile(const T *tile)
{
#ifdef OI_MATRIX_UNITS
    const uint64_t at = uint64_t(__cvta_generic_to_shared(tile));
    return (at & 0x3ffffu) >> 4 | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
#else
    return uint64_t(tile != nullptr);
#endif
}

//: oi_copy_ahead
/* Starts the copy of 16 bytes to a tile, or of zeros if they are not valid. */
template <typename T> static __device__ __forceinline__ void oi_copy_ahead(T *to, const T *from, bool is_valid)
{
#ifdef OI_MATRIX_UNITS
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
        :: "r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from), "r"(is_valid ? 16u : 0u) : "memory");
#else
    *(uint4 *)to = is_valid ? *(const uint4 *)from : make_uint4(0u, 0u, 0u, 0u);
#endif
}

//: oi_batch
/* Commits the copies since the last batch as a batch. */
static __device__ __forceinline__ void oi_batch()
{
#ifdef OI_MATRIX_UNITS
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

//: oi_arrived
/* Waits for this thread's batches, except the last pending ones; its writes are then visible to matrix units. */
template <int pending> static __device__ __forceinline__ void oi_arrived()
{
#ifdef OI_MATRIX_UNITS
    asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

//: oi_summed
/* Waits until all products are in the sums. */
template <typename T, int count> static __device__ __forceinline__ void oi_summed(T (&sums)[count])
{
#ifdef OI_MATRIX_UNITS
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < count; ++i) oi_pinned(sums[i]);
#endif
}

//: oi_pinned
/* Keeps the compiler from moving the use of a number across this point. */
static __device__ __forceinline__ void oi_pinned(float &x) { asm volatile("" : "+f"(x) :: "memory"); }
static __device__ __forceinline__ void oi_pinned(int32_t &x) { asm volatile("" : "+r"(x) :: "memory"); }

//: oi_weight
/* exp(x) for numbers that are not positive: x = n * ln 2 + r, exp(x) = 2^n * exp(r). Measured: at most 0.97
   ulp. */
static __device__ __forceinline__ float oi_weight(float x)
{
    /* The sum with 1.5 * 2^23 has n in its lowest bits. */
    const float shifted = oi_fused_f32(x, 0x1.715476p+0f, 0x1.8p23f), n = shifted - 0x1.8p23f;
    const float f = oi_fused_f32(x, 0x1.4ae0c0p-26f, oi_fused_f32(x, 0x1.715476p+0f, -n));
    float p = 0x1.3f906cp-13f;
    p = oi_fused_f32(p, f, 0x1.5f0a66p-10f);
    p = oi_fused_f32(p, f, 0x1.3b30b0p-7f);
    p = oi_fused_f32(p, f, 0x1.c6af78p-5f);
    p = oi_fused_f32(p, f, 0x1.ebfbd8p-3f);
    p = oi_fused_f32(p, f, 0x1.62e430p-1f);
    p = oi_fused_f32(p, f, 1.0f);
    /* 2^(n + 64), then 2^-64: the result may be subnormal. */
    const float power = __uint_as_float((__float_as_uint(shifted) << 23) + 0x5f800000u);
    return x < -104.0f ? 0.0f : p * power * 0x1p-64f;
}

//: oi_weights
/* Turns the scores of one of a thread's two rows into weights. */
template <int half, int count>
static __device__ __forceinline__ void oi_weights(float (&scores)[count], float most)
{
#pragma unroll
    for (int i = 0; i < count; i += 4) {
        scores[i + half * 2] = oi_weight(scores[i + half * 2] - most);
        scores[i + half * 2 + 1] = oi_weight(scores[i + half * 2 + 1] - most);
    }
}

//: oi_halves_bf16
/* Two weights as sums of two bf16 each, but for 2^-18 of them: packed, the first in the lower half. */
static __device__ __forceinline__ void oi_halves_bf16(float a, float b, uint32_t &high, uint32_t &low)
{
#ifdef OI_MATRIX_UNITS
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(b), "f"(a));
    const float rest_a = a - __uint_as_float(high << 16), rest_b = b - __uint_as_float(high & 0xffff0000u);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(rest_b), "f"(rest_a));
#else
    high = oi_pair_bf16(a, b);
    low = oi_pair_bf16(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xffff0000u));
#endif
}
