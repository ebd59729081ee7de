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
