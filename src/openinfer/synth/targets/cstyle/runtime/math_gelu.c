//: oi_gelu_fused
/* gelu(x) = max(x, 0) - a * t * exp(b - a^2 / 2) / 2 with a = |x|, t = 1 / (1 + a / 2), v = 1 - t and
   b = ln(exp(a^2 / 2) * erfc(a / sqrt(2)) / t) = v * (p(t) - 55/64). The exponent is n * ln 2 + s + e, where e has the
   rounding errors of the other terms. From 14.3 on, the exponential underflows. */
OI_INLINE float oi_gelu_fused(float x)
{
    const float size = oi_abs_f32(x), a = oi_pick_f32(size < 15.0f, size, 15.0f);
    const float halved = 0.5f * a, d = 1.0f + halved, t = 1.0f / d, v = 1.0f - t, w = t - 0.5625f;
    float p = -0x1.b1c258p-3f;
    p = oi_fused_f32(p, w, 0x1.7b1844p-3f);
    p = oi_fused_f32(p, w, 0x1.c5dec6p-4f);
    p = oi_fused_f32(p, w, -0x1.057730p-2f);
    p = oi_fused_f32(p, w, 0x1.fa3eeap-4f);
    p = oi_fused_f32(p, w, 0x1.114902p-3f);
    p = oi_fused_f32(p, w, -0x1.12aeb2p-2f);
    p = oi_fused_f32(p, w, 0x1.5efb2cp-4f);
    p = oi_fused_f32(p, w, 0x1.976964p-2f);
    p = oi_fused_f32(p, w, 0x1.70e214p-4f);
    /* The rounding errors of d, of t, which counts 0.3 times more in b, of v, and of the square. */
    const float back = d - 1.0f, lost_d = (1.0f - (d - back)) + (halved - back);
    const float lost_t = oi_fused_f32(-lost_d, t, oi_fused_f32(-d, t, 1.0f)), lost_v = (1.0f - v) - t;
    const float square = a * halved, lost_square = oi_fused_f32(a, halved, -square);
    const float lost = oi_fused_f32(lost_t, 1.3f, -(lost_square + lost_v));
    /* The sum with 1.5 * 2^23 + 64 has n + 64 in its lowest bits: t * 2^(n + 64) is a normal number. */
    const float about = oi_fused_f32(v, -0.859375f, -square);
    const float shifted = oi_fused_f32(about, 0x1.715476p+0f, 0x1.8p23f + 64.0f);
    const float n = shifted - (0x1.8p23f + 64.0f);
    const float s = oi_fused_f32(v, -0.859375f, oi_fused_f32(n, -0x1.62e400p-1f, -square));
    const float e = oi_fused_f32(v, p, oi_fused_f32(n, -0x1.7f7d1cp-20f, lost)), r = s + e;
    const float power = s + oi_fused_f32(oi_exp_series_f32(r), r * r, e);
    const float scaled = oi_bits_u32_f32(oi_bits_f32_u32(t) + (oi_bits_f32_u32(shifted) << 23));
    const float below = oi_fused_f32(a, scaled, a * scaled * power);
    return oi_fused_f32(below, -0x1p-65f, oi_pick_f32(x < 0.0f, x - x, x));
}

//: oi_gelu_wide
OI_INLINE double oi_gelu_wide(double x)
{
    const double size = oi_abs_f64(x), a = oi_pick_f64(size < 15.0, size, 15.0);
    return oi_pick_f64(x < 0.0, x - x, x) - 0.5 * a * oi_erfc_short(a * 0x1.6a09e667f3bcdp-1);
}

//: oi_gelu_f32
/* Measured: at most 1.71 ulp, 0.502 without fused multiply-add. */
OI_INLINE float oi_gelu_f32(float x) { return OI_FUSED != 0 ? oi_gelu_fused(x) : oi_f32(oi_gelu_wide(oi_f64(x))); }

//: oi_gelu_f64
/* x / 2 * erfc(y) with y = -x / sqrt(2): the derivative corrects the rounding error of y, which the tail would amplify.
   Measured: at most 2 ulp. */
OI_FUNCTION double oi_gelu_f64(double x)
{
    const oi_pair y = oi_exact_product(x, -0x1.6a09e667f3bcdp-1);
    const double lost = y.lo + x * 0x1.bdd3413b26456p-55, slope = -0x1.20dd750429b6dp+0 * oi_exp_f64(-(y.hi * y.hi));
    /* Halved first, so that nothing overflows. */
    return 0.5 * x * (oi_erfc_f64(y.hi) + (oi_abs_f64(y.hi) < 30.0 ? slope * lost : 0.0));
}
