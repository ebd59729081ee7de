//: oi_pick_f32
/* c ? a : b without a branch. */
#define oi_pick_f32(c, a, b) mix(b, a, c)
//: oi_pick_f64
#define oi_pick_f64(c, a, b) mix(b, a, c)

//: oi_quotient_f32
/* a / b, correctly rounded, of a device that divides with a wrong last bit: what is left of a, which a fused
   multiply-add has exactly, says what to add. y is the nearest number to the inverse, but for one of a number whose
   bits are all set. Numbers go through f64 where a quotient or a rest may be too small or too large. */
OI_INLINE float oi_quotient_f32(float a, float b)
{
    const float about = 1.0f / b, nearer = oi_fused_f32(oi_fused_f32(-b, about, 1.0f), about, about);
    const float y = oi_fused_f32(oi_fused_f32(-b, nearer, 1.0f), nearer, nearer), first = a * y;
    const float second = oi_fused_f32(oi_fused_f32(-b, first, a), y, first);
    const float last = oi_fused_f32(oi_fused_f32(-b, second, a), y, second);
    /* From 2^-20 up to 2^20; what is divided by it from 2^-76 up to 2^100, or 0. */
    const uint32_t below = oi_bits_f32_u32(b) & 0x7fffffffu;
    const bool is_usual = below - 0x35800000u < 0x14000000u && (below & 0x7fffffu) != 0x7fffffu;
    if (is_usual && abs(a) >= 0x1p-76f && abs(a) <= 0x1p100f) return last;
    if (is_usual && oi_bits_f32_u32(a) << 1 == 0u) return first;
    return oi_f32(oi_f64(a) / oi_f64(b));
}
//: oi_normal_exp_f32
/* exp(x) of a device that takes subnormal numbers for 0, as oi_exp_core_f32 has it: the exponent is added as bits.
   Measured: at most 0.89 ulp. */
OI_INLINE float oi_normal_exp_f32(float x)
{
    const float shifted = oi_mad_f32(x, 0x1.715476p+0f, 0x1.8p23f);
    const float k = shifted - 0x1.8p23f;
    const float s = oi_mad_f32(k, -0x1.62e400p-1f, x), t = k * -0x1.7f7d1cp-20f, r = s + t;
    const float y = 1.0f + (s + oi_mad_f32(oi_exp_series_f32(r), r * r, t));
    const float power = oi_bits_u32_f32(oi_bits_f32_u32(y) + (oi_bits_f32_u32(shifted) << 23));
    /* NaN is not below the largest number of which there is an exponential. */
    const float large = x + OI_INF;
    return oi_pick_f32(x < -0x1.5d589ep+6f, 0.0f, oi_pick_f32(x <= 0x1.62e42ep+6f, power, large));
}
//: oi_pair_bf16
/* Two numbers in one word, the first in its lower half, rounded as each is alone; NaN is rare. */
uint32_t oi_pair_bf16(float a, float b)
{
    const uint32_t x = oi_bits_f32_u32(a), y = oi_bits_f32_u32(b);
    if (max(x & 0x7fffffffu, y & 0x7fffffffu) > 0x7f800000u)
        return oi_u32(oi_to_bf16(a)) | (oi_u32(oi_to_bf16(b)) << 16);
    return ((x + 0x7fffu + ((x >> 16) & 1u)) >> 16) | ((y + 0x7fffu + ((y >> 16) & 1u)) & 0xffff0000u);
}

//: oi_from_f16
/* A small one is a count of 2^-24: devices that take subnormal numbers of f32 for 0 need not see any. */
OI_FUNCTION float oi_from_f16(uint16_t h)
{
    const uint32_t sign = oi_u32(h & 0x8000u) << 16, size = oi_u32(h) & 0x7fffu;
    const float small = float(size) * 5.9604644775390625e-08f;
    const uint32_t normal = (size << 13) + (size < 0x7c00u ? 0x38000000u : 0x70000000u);
    return uintBitsToFloat((size < 0x400u ? floatBitsToUint(small) : normal) | sign);
}
