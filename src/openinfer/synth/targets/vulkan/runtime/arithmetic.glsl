//: oi_pick_f32
/* c ? a : b without a branch. */
#define oi_pick_f32(c, a, b) mix(b, a, c)
//: oi_pick_f64
#define oi_pick_f64(c, a, b) mix(b, a, c)

//: oi_quotient_f32
/* a / b, correctly rounded, on a device whose division may be off in the last bit: the remainder, which a fused
   multiply-add computes exactly, gives the correction. y is the correctly rounded inverse, unless all mantissa bits of
   b are set. Where the quotient or the remainder may underflow or overflow, f64 is used. */
OI_INLINE float oi_quotient_f32(float a, float b)
{
    const float about = 1.0f / b, nearer = oi_fused_f32(oi_fused_f32(-b, about, 1.0f), about, about);
    const float y = oi_fused_f32(oi_fused_f32(-b, nearer, 1.0f), nearer, nearer), first = a * y;
    const float second = oi_fused_f32(oi_fused_f32(-b, first, a), y, first);
    const float last = oi_fused_f32(oi_fused_f32(-b, second, a), y, second);
    /* |b| is from 2^-20 up to 2^20, and |a| from 2^-76 up to 2^100, or 0. */
    const uint32_t below = oi_bits_f32_u32(b) & 0x7fffffffu;
    const bool is_usual = below - 0x35800000u < 0x14000000u && (below & 0x7fffffu) != 0x7fffffu;
    if (is_usual && abs(a) >= 0x1p-76f && abs(a) <= 0x1p100f) return last;
    if (is_usual && oi_bits_f32_u32(a) << 1 == 0u) return first;
    return oi_f32(oi_f64(a) / oi_f64(b));
}
//: oi_normal_exp_f32
/* exp(x) on a device that flushes subnormal numbers to 0: like oi_exp_core_f32, but the exponent is added as bits.
   Measured: at most 0.89 ulp. */
OI_INLINE float oi_normal_exp_f32(float x)
{
    const float shifted = oi_mad_f32(x, 0x1.715476p+0f, 0x1.8p23f);
    const float k = shifted - 0x1.8p23f;
    const float s = oi_mad_f32(k, -0x1.62e400p-1f, x), t = k * -0x1.7f7d1cp-20f, r = s + t;
    const float y = 1.0f + (s + oi_mad_f32(oi_exp_series_f32(r), r * r, t));
    const float power = oi_bits_u32_f32(oi_bits_f32_u32(y) + (oi_bits_f32_u32(shifted) << 23));
    /* NaN fails both comparisons, and takes this value: NaN. */
    const float large = x + OI_INF;
    return oi_pick_f32(x < -0x1.5d589ep+6f, 0.0f, oi_pick_f32(x <= 0x1.62e42ep+6f, power, large));
}
//: oi_inverse_f32
/* 1 / b, within 0.51 ulp, for |b| from 2^-100 to 2^100. */
OI_INLINE float oi_inverse_f32(float b)
{
    const float about = 1.0f / b;
    return oi_fused_f32(oi_fused_f32(-b, about, 1.0f), about, about);
}
//: oi_near_f32
/* a / b, within 1.5 ulp. */
OI_INLINE float oi_near_f32(float a, float b)
{
    if (abs(b) >= 0x1p-100f && abs(b) <= 0x1p100f) return a * oi_inverse_f32(b);
    return oi_far_f32(a, b);
}
//: oi_far_f32
/* The same for small or large b. The inverse of 0, or of a number that is not finite, is not refined. */
OI_FUNCTION float oi_far_f32(float a, float b)
{
    const float scale = abs(b) > 1.0f ? 0x1p-64f : 0x1p64f, scaled = b * scale, about = 1.0f / scaled;
    const float lost = oi_fused_f32(-scaled, about, 1.0f);
    return a * oi_pick_f32(abs(lost) < 1.0f, oi_fused_f32(lost, about, about), about) * scale;
}
//: oi_divisor_f32
/* What oi_far_f32 multiplies with first: the inverse of b, scaled if b is small or large. */
OI_INLINE float oi_divisor_f32(float b)
{
    const float scaled = b * oi_divisor_scale_f32(b), about = 1.0f / scaled;
    const float lost = oi_fused_f32(-scaled, about, 1.0f);
    return oi_pick_f32(abs(lost) < 1.0f, oi_fused_f32(lost, about, about), about);
}
//: oi_divisor_scale_f32
/* And what it multiplies with last: 1 unless b is small or large. */
OI_INLINE float oi_divisor_scale_f32(float b)
{
    return oi_pick_f32(abs(b) > 0x1p100f, 0x1p-64f, oi_pick_f32(abs(b) < 0x1p-100f, 0x1p64f, 1.0f));
}
//: oi_few_f32
/* a / b to about 20 bits, for results with half as many. Above 2^126, the inverse is subnormal. */
OI_INLINE float oi_few_f32(float a, float b)
{
    if (abs(b) <= 0x1p125f) return a * (1.0f / b);
    return oi_far_f32(a, b);
}
//: oi_near_exp_f32
/* exp(x) for x up to 88, within 4 ulp if exp2 is within 3 from -0.5 to 0.5: exp2(x * log2(e) - n) * 2^n. The last digits
   of a sum with 1.5 * 2^23 + 127 are n + 127, the exponent of 2^n; where that is 0, so is the result. */
OI_INLINE float oi_near_exp_f32(float x)
{
    const float shifted = max(oi_fused_f32(x, 0x1.715476p+0f, 0x1.8p23f + 127.0f), 0x1.8p23f);
    const float n = shifted - (0x1.8p23f + 127.0f);
    const float rest = oi_fused_f32(x, 0x1.4ae0cp-26f, oi_fused_f32(x, 0x1.715476p+0f, -n));
    return exp2(rest) * oi_bits_u32_f32(oi_bits_f32_u32(shifted) << 23);
}
//: oi_few_exp_f32
/* exp(x) to about 15 bits, 20 near 0. */
OI_INLINE float oi_few_exp_f32(float x) { return exp2(x * 0x1.715476p+0f); }
//: oi_few_tanh_f32
/* tanh(x) = 1 - 2 / (exp(2 x) + 1), to about 13 bits; x itself for small x. */
OI_INLINE float oi_few_tanh_f32(float x)
{
    const float size = oi_abs_f32(x), power = exp2(size * 0x1.715476p+1f);
    const float far = oi_fused_f32(1.0f / (power + 1.0f), -2.0f, 1.0f);
    return oi_copysign_f32(oi_pick_f32(size >= 0x1p-6f, far, size), x);
}
//: oi_few_gelu_f32
/* gelu(x) = max(x, 0) - a * t * p(t) * exp(-a^2 / 2) with a = |x| and t = 1 / (1 + 0.3 a), to about 12 bits: t * p(t)
   is exp(a^2 / 2) * erfc(a / sqrt(2)) / 2. */
OI_INLINE float oi_few_gelu_f32(float x)
{
    const float size = oi_abs_f32(x), a = min(size, 15.0f), t = 1.0f / oi_fused_f32(a, 0.3f, 1.0f);
    float p = 0x1.abb6eep-3f;
    p = oi_fused_f32(p, t, 0x1.23880cp-5f);
    p = oi_fused_f32(p, t, 0x1.198e44p-3f);
    p = oi_fused_f32(p, t, 0x1.e42a40p-4f);
    const float power = exp2(a * -0x1.715476p-1f * a);
    return oi_fused_f32(a * t * -p, power, oi_positive_f32(x));
}
//: oi_positive_f32
/* max(x, 0), but NaN for NaN and for -infinity. */
OI_INLINE float oi_positive_f32(float x) { return oi_fused_f32(oi_abs_f32(x), 0.5f, 0.5f * x); }
//: oi_normal_gelu_f32
/* oi_gelu_fused without correcting the rounding of 1 + a / 2 and of 1 - t, which costs half of gelu's tolerance. */
OI_INLINE float oi_normal_gelu_f32(float x)
{
    const float a = min(oi_abs_f32(x), 15.0f), halved = 0.5f * a, d = 1.0f + halved, t = 1.0f / d;
    const float v = 1.0f - t, w = t - 0.5625f, square = a * halved;
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
    const float lost = oi_fused_f32(oi_fused_f32(-d, t, 1.0f), 1.3f, -oi_fused_f32(a, halved, -square));
    const float about = oi_fused_f32(v, -0.859375f, -square);
    const float shifted = oi_fused_f32(about, 0x1.715476p+0f, 0x1.8p23f + 64.0f);
    const float n = shifted - (0x1.8p23f + 64.0f);
    const float s = oi_fused_f32(v, -0.859375f, oi_fused_f32(n, -0x1.62e400p-1f, -square));
    const float e = oi_fused_f32(v, p, oi_fused_f32(n, -0x1.7f7d1cp-20f, lost)), r = s + e;
    const float power = s + oi_fused_f32(oi_exp_series_f32(r), r * r, e);
    const float scaled = a * oi_bits_u32_f32(oi_bits_f32_u32(t) + (oi_bits_f32_u32(shifted) << 23));
    return oi_fused_f32(oi_fused_f32(scaled, power, scaled), -0x1p-65f, oi_positive_f32(x));
}
//: oi_normal_f32
/* x, or a zero of the same sign if x is subnormal. */
OI_INLINE float oi_normal_f32(float x)
{
    const uint32_t bits = oi_bits_f32_u32(x);
    return oi_bits_u32_f32((bits & 0x7f800000u) == 0u ? bits & 0x80000000u : bits);
}
//: oi_normal_log_f32
/* log(x) on a device that flushes subnormal numbers to 0: oi_log_f32 reads bits, and would see them. */
OI_INLINE float oi_normal_log_f32(float x) { return oi_log_f32(oi_normal_f32(x)); }
//: oi_normal_log2_f32
OI_INLINE float oi_normal_log2_f32(float x) { return oi_log2_f32(oi_normal_f32(x)); }
//: oi_normal_log10_f32
OI_INLINE float oi_normal_log10_f32(float x) { return oi_log10_f32(oi_normal_f32(x)); }
//: oi_pair_bf16
/* Packs two numbers into a word, the first in the lower half, rounded as by oi_to_bf16; only NaN takes the branch. */
uint32_t oi_pair_bf16(float a, float b)
{
    const uint32_t x = oi_bits_f32_u32(a), y = oi_bits_f32_u32(b);
    if (max(x & 0x7fffffffu, y & 0x7fffffffu) > 0x7f800000u)
        return oi_u32(oi_to_bf16(a)) | (oi_u32(oi_to_bf16(b)) << 16);
    return ((x + 0x7fffu + ((x >> 16) & 1u)) >> 16) | ((y + 0x7fffu + ((y >> 16) & 1u)) & 0xffff0000u);
}
//: oi_join_bf16
/* Packs two numbers that are already rounded. */
#define oi_join_bf16(a, b) ((oi_bits_f32_u32(a) >> 16) | (oi_bits_f32_u32(b) & 0xffff0000u))
//: oi_round_bf16
/* Rounds to bf16 on a device that flushes subnormal numbers to 0: the sum with 1.5 * 2^16 times the power of two below
   x has as many digits as bf16. From 2^112 on, it is not finite. The sign is set again, as a zero has lost it. */
OI_INLINE float oi_round_bf16(float x)
{
    const float power = oi_bits_u32_f32(oi_bits_f32_u32(x) & 0x7f800000u);
    const float rounded = oi_mad_f32(power, -98304.0f, oi_mad_f32(power, 98304.0f, x));
    return oi_bits_u32_f32(oi_bits_f32_u32(rounded) | (oi_bits_f32_u32(x) & 0x80000000u));
}
//: oi_pairs_bf16
/* Packs four numbers into two words; if the sum of their sizes is not finite, they are rounded by bits. */
uvec2 oi_pairs_bf16(float a, float b, float c, float d)
{
#if OI_FLUSHED
    const float x = oi_round_bf16(a), y = oi_round_bf16(b), z = oi_round_bf16(c), w = oi_round_bf16(d);
    precise const float size = (abs(x) + abs(y)) + (abs(z) + abs(w));
    if (oi_bits_f32_u32(size) < 0x7f800000u) return uvec2(oi_join_bf16(x, y), oi_join_bf16(z, w));
#endif
    return uvec2(oi_pair_bf16(a, b), oi_pair_bf16(c, d));
}
//: oi_quads_bf16
/* Packs eight numbers into four words. */
uvec4 oi_quads_bf16(float a, float b, float c, float d, float e, float f, float g, float h)
{
#if OI_FLUSHED
    const float x = oi_round_bf16(a), y = oi_round_bf16(b), z = oi_round_bf16(c), w = oi_round_bf16(d);
    const float p = oi_round_bf16(e), q = oi_round_bf16(f), r = oi_round_bf16(g), s = oi_round_bf16(h);
    precise const float size = ((abs(x) + abs(y)) + (abs(z) + abs(w))) + ((abs(p) + abs(q)) + (abs(r) + abs(s)));
    if (oi_bits_f32_u32(size) < 0x7f800000u)
        return uvec4(oi_join_bf16(x, y), oi_join_bf16(z, w), oi_join_bf16(p, q), oi_join_bf16(r, s));
#endif
    return uvec4(oi_pair_bf16(a, b), oi_pair_bf16(c, d), oi_pair_bf16(e, f), oi_pair_bf16(g, h));
}
//: oi_near_pair_bf16
/* Packs two numbers that are not NaN, halfway ones rounded away from 0. */
#define oi_near_pair_bf16(a, b) (((oi_bits_f32_u32(a) + 0x8000u) >> 16) | ((oi_bits_f32_u32(b) + 0x8000u) & 0xffff0000u))
//: oi_near_pairs_bf16
/* Packs four numbers into two words; if the sum of their sizes is not finite, some may be NaN. */
uvec2 oi_near_pairs_bf16(float a, float b, float c, float d)
{
    precise const float size = (abs(a) + abs(b)) + (abs(c) + abs(d));
    if (oi_bits_f32_u32(size) < 0x7f800000u) return uvec2(oi_near_pair_bf16(a, b), oi_near_pair_bf16(c, d));
    return uvec2(oi_pair_bf16(a, b), oi_pair_bf16(c, d));
}
//: oi_near_quads_bf16
/* Packs eight numbers into four words. */
uvec4 oi_near_quads_bf16(float a, float b, float c, float d, float e, float f, float g, float h)
{
    precise const float size = ((abs(a) + abs(b)) + (abs(c) + abs(d))) + ((abs(e) + abs(f)) + (abs(g) + abs(h)));
    if (oi_bits_f32_u32(size) < 0x7f800000u)
        return uvec4(oi_near_pair_bf16(a, b), oi_near_pair_bf16(c, d), oi_near_pair_bf16(e, f), oi_near_pair_bf16(g, h));
    return uvec4(oi_pair_bf16(a, b), oi_pair_bf16(c, d), oi_pair_bf16(e, f), oi_pair_bf16(g, h));
}
