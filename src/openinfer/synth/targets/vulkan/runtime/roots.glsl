//: oi_fused_root_f32
/* The square root of a normal number from 2^-64 up, correctly rounded if the inverse root is within 4 ulp: of all
   mantissas and all such errors, none gives another result. */
OI_INLINE float oi_fused_root_f32(float x)
{
    const float y = inversesqrt(x), first = x * y, halved = 0.5f * y;
    const float lost = oi_fused_f32(-halved, first, 0.5f);
    const float root = oi_fused_f32(first, lost, first), slope = oi_fused_f32(halved, lost, halved);
    return oi_fused_f32(oi_fused_f32(-root, root, x), slope, root);
}
//: oi_is_usual_f32
/* Whether a number is normal, finite and positive. */
#define oi_is_usual_f32(x) (oi_bits_f32_u32(x) - 0x00800000u < 0x7f000000u)
//: oi_fused_sqrt_f32
/* sqrt(x), correctly rounded; of a subnormal number that a device takes for 0, a zero. */
OI_INLINE float oi_fused_sqrt_f32(float x)
{
    const bool is_small = x < 0x1p-64f;
    const float scaled = x * oi_pick_f32(is_small, 0x1p64f, 1.0f);
    const float root = oi_fused_root_f32(scaled) * oi_pick_f32(is_small, 0x1p-32f, 1.0f);
    const float twice = x + x;
    return oi_pick_f32(oi_is_usual_f32(scaled), root, oi_pick_f32(x < 0.0f, OI_NAN, twice));
}
//: oi_half_sqrt_f32
/* sqrt(x) of an f16, near enough to be rounded to the right one. */
OI_INLINE float oi_half_sqrt_f32(float x)
{
    const float y = inversesqrt(x), first = x * y, halved = 0.5f * y;
    const float root = oi_fused_f32(oi_fused_f32(-first, first, x), halved, first);
    return oi_pick_f32(oi_is_usual_f32(x), root, oi_pick_f32(x < 0.0f, OI_NAN, x));
}
//: oi_few_sqrt_f32
/* sqrt(x) of a number with at most 8 digits, near enough to be rounded to the right one of as many. */
OI_INLINE float oi_few_sqrt_f32(float x)
{
    const float twice = x + x;
    return oi_pick_f32(x > 0.0f, sqrt(x), oi_pick_f32(x < 0.0f, OI_NAN, twice));
}
//: oi_near_rsqrt_f32
/* 1 / sqrt(x), within 1.5 ulp. */
OI_INLINE float oi_near_rsqrt_f32(float x)
{
    const bool is_small = x < 0x1p-64f;
    const float scaled = x * oi_pick_f32(is_small, 0x1p64f, 1.0f), y = inversesqrt(scaled), halved = 0.5f * y;
    const float nearer = oi_fused_f32(oi_fused_f32(-(scaled * y), y, 1.0f), halved, y);
    const float inverse = nearer * oi_pick_f32(is_small, 0x1p32f, 1.0f);
    return oi_pick_f32(oi_is_usual_f32(scaled), inverse, oi_odd_rsqrt_f32(x, scaled));
}
//: oi_odd_rsqrt_f32
/* Of a zero, or a number that is not finite and positive. */
OI_INLINE float oi_odd_rsqrt_f32(float x, float scaled)
{
    const float end = oi_copysign_f32(OI_INF, x);
    return oi_pick_f32(scaled == 0.0f, end, oi_pick_f32(x == OI_INF, 0.0f, OI_NAN));
}
//: oi_few_rsqrt_f32
/* 1 / sqrt(x), within a few units in the last place. */
OI_INLINE float oi_few_rsqrt_f32(float x)
{
    const float end = oi_copysign_f32(OI_INF, x);
    return oi_pick_f32(x > 0.0f, inversesqrt(x), oi_pick_f32(x == 0.0f, end, OI_NAN));
}
