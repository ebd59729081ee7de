//: oi_few_erf_f32
/* erf(x) = 1 - 2^q(|x|), or x * p(x^2) for small x, to about 15 bits. */
OI_INLINE float oi_few_erf_f32(float x)
{
    const float size = oi_abs_f32(x), a = min(size, 4.0f);
    float q = 0x1.4ca1a8p-6f;
    q = oi_mad_f32(q, a, -0x1.1db8dap-3f);
    q = oi_mad_f32(q, a, -0x1.d7e65ep-1f);
    q = oi_mad_f32(q, a, -0x1.a0a942p+0f);
    const float far = 1.0f - exp2(q * a);
    const float near = oi_mad_f32(size * size, -0x1.7f5aaep-2f, 0x1.20dd3cp+0f) * size;
    return oi_copysign_f32(oi_pick_f32(size >= 0.125f, far, near), x);
}
//: oi_few_log1p_f32
/* log(1 + x), to about 15 bits. */
OI_INLINE float oi_few_log1p_f32(float x)
{
    const float above = 1.0f + x, far = log2(above) * 0x1.62e430p-1f;
    const float near = oi_mad_f32(oi_mad_f32(x, 0x1.5615ccp-2f, -0x1.006034p-1f), x, 0x1.fffff6p-1f) * x;
    const float y = oi_pick_f32(oi_abs_f32(x) < 0.0625f, near, far);
    return oi_pick_f32(x > -1.0f, y, oi_pick_f32(x == -1.0f, -OI_INF, OI_NAN));
}
//: oi_few_softplus_f32
/* log(1 + exp(x)) = max(x, 0) + e * p(e) with e = exp(-|x|), to about 14 bits. */
OI_INLINE float oi_few_softplus_f32(float x)
{
    const float e = exp2(oi_abs_f32(x) * -0x1.715476p+0f);
    float p = 0x1.52a774p-5f;
    p = oi_mad_f32(p, e, -0x1.426028p-3f);
    p = oi_mad_f32(p, e, 0x1.39a394p-2f);
    p = oi_mad_f32(p, e, -0x1.fce6d2p-2f);
    p = oi_mad_f32(p, e, 0x1.fff888p-1f);
    return oi_mad_f32(p, e, oi_pick_f32(x > 0.0f, x, 0.0f));
}
//: oi_few_mish_f32
/* x * n / (n + 2) with n = e * (e + 2) and e = exp(x), to about 15 bits. Far below 0 it is x * e, although e has no room
   there. */
OI_INLINE float oi_few_mish_f32(float x)
{
    const bool is_far = x < -40.0f;
    const float power = oi_mad_f32(min(x, 20.0f), 0x1.715476p+0f, oi_pick_f32(is_far, 64.0f, 0.0f));
    const float e = exp2(power), n = e * (e + 2.0f), near = n * (1.0f / (n + 2.0f)), far = e * 0x1p-60f;
    const float scaled = x * oi_pick_f32(is_far, 0x1p-4f, 1.0f);
    return scaled * oi_pick_f32(is_far, far, near);
}
//: oi_few_sine_f32
/* sin(r) to about 13 bits for |r| < 1.572, with the sign turned if the highest bit is set. */
OI_INLINE float oi_few_sine_f32(float r, uint32_t turned)
{
    const float z = r * r;
    const float y = oi_fused_f32(oi_fused_f32(z, 0x1.f236f0p-8f, -0x1.53e23ap-3f), z, 0x1.fff1d0p-1f) * r;
    return oi_bits_u32_f32(oi_bits_f32_u32(y) ^ (turned & 0x80000000u));
}
//: oi_half_sin_f32
/* sin(x) to about 13 bits for |x| < 2^16: x = k * pi + r, where k is in the lowest bits of its sum with 1.5 * 2^23. */
OI_INLINE float oi_half_sin_f32(float x)
{
    const float shifted = oi_fused_f32(x, 0x1.45f306p-2f, 0x1.8p23f), k = shifted - 0x1.8p23f;
    const float r = oi_fused_f32(k, -0x1.4442d2p-23f, oi_fused_f32(k, -0x1.921fb4p+1f, x));
    return oi_few_sine_f32(r, oi_bits_f32_u32(shifted) << 31);
}
//: oi_half_cos_f32
/* cos(x), likewise: x = (k - 1/2) * pi + r. */
OI_INLINE float oi_half_cos_f32(float x)
{
    const float shifted = oi_fused_f32(x, 0x1.45f306p-2f, 0.5f) + 0x1.8p23f, k = (shifted - 0x1.8p23f) - 0.5f;
    const float r = oi_fused_f32(k, -0x1.4442d2p-23f, oi_fused_f32(k, -0x1.921fb4p+1f, x));
    return oi_few_sine_f32(r, oi_bits_f32_u32(shifted) << 31);
}
//: oi_far_sine_f32
/* sin(|x| + quarter) for |x| >= 2^16, where 2^32 is a full turn: |x| = m * 2^p, and the words have 32 bits each of
   1 / (2 pi), 8 bits further each time. */
OI_FUNCTION float oi_far_sine_f32(float x, uint32_t quarter, uint32_t turned)
{
    OI_TABLE uint32_t words[18] = {
        0x00517cc1u, 0x517cc1b7u, 0x7cc1b727u, 0xc1b72722u, 0xb727220au, 0x27220a94u, 0x220a94feu, 0x0a94fe13u,
        0x94fe13abu, 0xfe13abe8u, 0x13abe8fau, 0xabe8fa9au, 0xe8fa9a6eu, 0xfa9a6ee0u, 0x9a6ee06du, 0x6ee06db1u,
        0xe06db14au, 0x6db14accu,
    };
    const uint32_t u = oi_bits_f32_u32(x) & 0x7fffffffu;
    if (u >= 0x7f800000u) return OI_NAN;
    const uint32_t p = (u >> 23) - 143u, m = ((u & 0x7fffffu) | 0x800000u) << (p & 7u);
    uint32_t high, low;
    umulExtended(m, words[(p >> 3) + 4u], high, low);
    const uint32_t turns = m * words[p >> 3] + high + quarter;
    return oi_few_sine_f32(oi_f32(oi_i32(turns << 1)) * 0x1.921fb6p-31f, turns ^ (turns << 1) ^ turned);
}
//: oi_few_sin_f32
OI_INLINE float oi_few_sin_f32(float x)
{
    if (oi_abs_f32(x) < 0x1p16f) return oi_half_sin_f32(x);
    return oi_far_sine_f32(x, 0u, oi_bits_f32_u32(x));
}
//: oi_few_cos_f32
OI_INLINE float oi_few_cos_f32(float x)
{
    if (oi_abs_f32(x) < 0x1p16f) return oi_half_cos_f32(x);
    return oi_far_sine_f32(x, 0x40000000u, 0u);
}
