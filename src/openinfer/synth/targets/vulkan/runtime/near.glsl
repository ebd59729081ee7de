//: oi_fused_log1p_f32
/* log(1 + x) like oi_log_f32: 1 + x = 2^n * (1 + f), where f has what the rounding of the sum lost. Beyond 2^24, nothing
   of that is left. Measured: at most 1.4 ulp. */
OI_INLINE float oi_fused_log1p_f32(float x)
{
    const float above = 1.0f + x, lost = oi_pick_f32(x < 1.0f, x - (above - 1.0f), 1.0f - (above - x));
    const uint32_t u = oi_bits_f32_u32(above), n = oi_u32(oi_i32(u - 0x3f3504f3u) >> 23);
    const uint32_t power = oi_u32(max(oi_i32(0x3f800000u - (n << 23)), 0));
    const float scale = oi_bits_u32_f32(power), first = oi_bits_u32_f32(u - (n << 23)) - 1.0f;
    const float f = oi_fused_f32(lost, scale, first), k = oi_f32(oi_i32(n)), z = f * f;
    float p = 0x1.11c346p-4f;
    p = oi_fused_f32(p, f, -0x1.dd6334p-4f);
    p = oi_fused_f32(p, f, 0x1.e7a656p-4f);
    p = oi_fused_f32(p, f, -0x1.fc4dfcp-4f);
    p = oi_fused_f32(p, f, 0x1.232cf4p-3f);
    p = oi_fused_f32(p, f, -0x1.555ae2p-3f);
    p = oi_fused_f32(p, f, 0x1.99a546p-3f);
    p = oi_fused_f32(p, f, -0x1.00000ap-2f);
    p = oi_fused_f32(p, f, 0x1.555546p-2f);
    const float tail = oi_fused_f32(-0.5f, z, oi_fused_f32(k, -0x1.05c610p-29f, p * f * z));
    const float y = oi_copysign_f32(oi_fused_f32(k, 0x1.62e430p-1f, f + tail), x);
    const float special = oi_pick_f32(x == -1.0f, -OI_INF, oi_pick_f32(x < -1.0f, OI_NAN, x));
    const bool below = x > -1.0f, above_all = x < OI_INF;
    return oi_pick_f32(oi_both(below, above_all), y, special);
}
//: oi_near_softplus_f32
/* log(1 + exp(x)) = max(x, 0) + e + e^2 * p(e) with e = exp(-|x|). Measured: at most 2.3 ulp. */
OI_INLINE float oi_near_softplus_f32(float x)
{
    const float e = oi_normal_exp_f32(-oi_abs_f32(x));
    float p = -0x1.b2f4dep-9f;
    p = oi_fused_f32(p, e, 0x1.4b07d6p-6f);
    p = oi_fused_f32(p, e, -0x1.d862cap-5f);
    p = oi_fused_f32(p, e, 0x1.b57996p-4f);
    p = oi_fused_f32(p, e, -0x1.3a7a74p-3f);
    p = oi_fused_f32(p, e, 0x1.935c9cp-3f);
    p = oi_fused_f32(p, e, -0x1.ff26e0p-3f);
    p = oi_fused_f32(p, e, 0x1.554df0p-2f);
    p = oi_fused_f32(p, e, -0x1.ffffd2p-2f);
    return oi_pick_f32(x > 0.0f, x, 0.0f) + oi_fused_f32(e * e, p, e);
}
//: oi_near_mish_f32
/* x * n / (n + 2) with n = e * (e + 2) and e = exp(x); from 20 on, it is x. Far below 0 it is x * e, where exp(-65.6875)
   is a factor of its own. Measured: at most 2.7 ulp. */
OI_INLINE float oi_near_mish_f32(float x)
{
    const bool is_far = x < -65.6875f;
    const float shifted = x + oi_pick_f32(is_far, 65.6875f, 0.0f);
    const float e = oi_normal_exp_f32(oi_pick_f32(x > 20.0f, 20.0f, shifted)), n = oi_fused_f32(e, e, e + e);
    const float below = n + 2.0f, about = 1.0f / below, first = n * about;
    const float rest = oi_fused_f32(-first, below, n) - first * (n - (below - 2.0f));
    const float near = x * oi_fused_f32(rest, about, first), far = x * 0x1.2cdd48p-95f * e;
    return oi_pick_f32(is_far, far, near);
}
