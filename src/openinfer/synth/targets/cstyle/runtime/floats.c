//: oi_from_bf16 u16
/* bf16 is the upper half of an f32. */
OI_FUNCTION float oi_from_bf16(uint16_t h) { return oi_bits_u32_f32(oi_u32(h) << 16); }

//: oi_to_bf16
/* Rounds to nearest even; a NaN stays NaN, with a truncated payload. */
OI_FUNCTION uint16_t oi_to_bf16(float x)
{
    const uint32_t u = oi_bits_f32_u32(x);
    const uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t nan = (u >> 16) | (oi_u32((u & 0x007f0000u) == 0) << 6);
    return oi_u16((u & 0x7fffffffu) > 0x7f800000u ? nan : r);
}

//: oi_from_f16 u16
/* Shifts the 5 exponent bits into position and rescales, which also normalizes subnormals. */
OI_FUNCTION float oi_from_f16(uint16_t h)
{
    const uint32_t sign = oi_u32(h & 0x8000u) << 16;
    const uint32_t rest = oi_u32(h & 0x7fffu) << 13;
    const float scaled = oi_bits_u32_f32(rest) * oi_bits_u32_f32(0x77800000u); /* times 2^112 */
    const uint32_t special = rest | 0x7f800000u;
    const uint32_t bits = (h & 0x7c00u) == 0x7c00u ? special : oi_bits_f32_u32(scaled);
    return oi_bits_u32_f32(bits | sign);
}

//: oi_to_f16
/* Rounds to nearest even; overflow gives infinity, and a NaN stays NaN. */
OI_FUNCTION uint16_t oi_to_f16(float x)
{
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
}

//: oi_from_f8 u8
/* f8 (e5m2) is the upper half of an f16. */
OI_FUNCTION float oi_from_f8(uint8_t h) { return oi_from_f16(oi_u16(oi_u16(h) << 8)); }

//: oi_to_f8
/* Rounds to nearest even; overflow gives infinity, and a NaN stays NaN. */
OI_FUNCTION uint8_t oi_to_f8(float x)
{
    const uint32_t u = oi_bits_f32_u32(x);
    const uint32_t sign = (u >> 24) & 0x80u;
    const uint32_t a = u & 0x7fffffffu;
    const uint32_t normal = (a - 0x38000000u + 0xfffffu + ((a >> 21) & 1u)) >> 21;
    /* Below 2^-14, adding 128 leaves the rounded result in the lowest bits. */
    const uint32_t small = oi_bits_f32_u32(oi_bits_u32_f32(a) + 128.0f) - 0x43000000u;
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x47700000u ? 0x7cu : r;
    r = a > 0x7f800000u ? 0x7cu | ((a >> 21) & 3u) | (oi_u32((a & 0x00600000u) == 0) << 1) : r;
    return oi_u8(r | sign);
}

//: oi_min_f32
/* NaN if either is NaN; -0 is less than +0: equal values differ at most in the sign bit, which is ORed. */
OI_FUNCTION float oi_min_f32(float a, float b)
{
    const float same = oi_bits_u32_f32(oi_bits_f32_u32(a) | oi_bits_f32_u32(b)), other = a < b ? a : b;
    return a != a ? a : a == b ? same : other;
}
//: oi_max_f32
/* NaN if either is NaN; +0 is greater than -0: equal values differ at most in the sign bit, which is ANDed. */
OI_FUNCTION float oi_max_f32(float a, float b)
{
    const float same = oi_bits_u32_f32(oi_bits_f32_u32(a) & oi_bits_f32_u32(b)), other = a > b ? a : b;
    return a != a ? a : a == b ? same : other;
}
//: oi_min_f64
OI_FUNCTION double oi_min_f64(double a, double b)
{
    const double same = oi_bits_u64_f64(oi_bits_f64_u64(a) | oi_bits_f64_u64(b)), other = a < b ? a : b;
    return a != a ? a : a == b ? same : other;
}
//: oi_max_f64
OI_FUNCTION double oi_max_f64(double a, double b)
{
    const double same = oi_bits_u64_f64(oi_bits_f64_u64(a) & oi_bits_f64_u64(b)), other = a > b ? a : b;
    return a != a ? a : a == b ? same : other;
}

//: oi_rint_f32
/* Rounds to the nearest integer, halves to even: by an instruction, or by adding and subtracting 2^23. */
OI_FUNCTION float oi_rint_f32(float x)
{
#if OI_NEAREST
    return oi_nearest_f32(x);
#else
    const float a = oi_abs_f32(x);
    const float r = (a + 8388608.0f) - 8388608.0f;
    return a < 8388608.0f ? oi_copysign_f32(r, x) : x;
#endif
}
//: oi_rint_f64
OI_FUNCTION double oi_rint_f64(double x)
{
    const double a = oi_abs_f64(x);
    const double r = (a + 4503599627370496.0) - 4503599627370496.0;
    return a < 4503599627370496.0 ? oi_copysign_f64(r, x) : x;
}
//: oi_trunc_f32
OI_FUNCTION float oi_trunc_f32(float x)
{
    const float a = oi_abs_f32(x);
    const float r = oi_rint_f32(a);
    return a < 8388608.0f ? oi_copysign_f32(r > a ? r - 1.0f : r, x) : x;
}
//: oi_trunc_f64
OI_FUNCTION double oi_trunc_f64(double x)
{
    const double a = oi_abs_f64(x);
    const double r = oi_rint_f64(a);
    return a < 4503599627370496.0 ? oi_copysign_f64(r > a ? r - 1.0 : r, x) : x;
}
//: oi_floor_f32
OI_FUNCTION float oi_floor_f32(float x)
{
    const float r = oi_rint_f32(x);
    return r > x ? oi_copysign_f32(r - 1.0f, x) : r;
}
//: oi_floor_f64
OI_FUNCTION double oi_floor_f64(double x)
{
    const double r = oi_rint_f64(x);
    return r > x ? oi_copysign_f64(r - 1.0, x) : r;
}
//: oi_ceil_f32
OI_FUNCTION float oi_ceil_f32(float x)
{
    const float r = oi_rint_f32(x);
    return r < x ? oi_copysign_f32(r + 1.0f, x) : r;
}
//: oi_ceil_f64
OI_FUNCTION double oi_ceil_f64(double x)
{
    const double r = oi_rint_f64(x);
    return r < x ? oi_copysign_f64(r + 1.0, x) : r;
}
