//: oi_from_f16 u16
/* A subnormal f16 is a multiple of 2^-24: no subnormal f32, which a device may flush to 0, is involved. */
OI_FUNCTION float oi_from_f16(uint16_t h)
{
#if OI_HALVES
    return unpackHalf2x16(oi_u32(h)).x;
#else
    const uint32_t sign = oi_u32(h & 0x8000u) << 16, size = oi_u32(h) & 0x7fffu;
    const float small = float(size) * 5.9604644775390625e-08f;
    const uint32_t normal = (size << 13) + (size < 0x7c00u ? 0x38000000u : 0x70000000u);
    return uintBitsToFloat((size < 0x400u ? floatBitsToUint(small) : normal) | sign);
#endif
}

//: oi_to_f16
/* Rounds to nearest even; overflow gives infinity, and a NaN stays NaN. */
OI_FUNCTION uint16_t oi_to_f16(float x)
{
#if OI_HALVES
    /* With a 0 that no compiler can fold: NVIDIA's takes what is packed and then unpacked for the same number. */
    return oi_u16(packHalf2x16(vec2(x, 0.0f)) ^ gl_WorkGroupID.z);
#else
    const uint32_t u = oi_bits_f32_u32(x);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t a = u & 0x7fffffffu;
    const uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    /* Below 2^-14, adding 0.5 leaves the rounded result in the lowest bits. */
    const uint32_t small = oi_bits_f32_u32(oi_bits_u32_f32(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7c00u | ((a >> 13) & 0x3ffu) | (oi_u32((a & 0x007fe000u) == 0) << 9) : r;
    return oi_u16(r | sign);
#endif
}
