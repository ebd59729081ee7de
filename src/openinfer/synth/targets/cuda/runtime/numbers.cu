//: oi_pair_bf16
/* Packs two numbers into a word, the first in the lower half, rounded as by oi_to_bf16. */
OI_FUNCTION uint32_t oi_pair_bf16(float a, float b)
{
    return oi_u32(oi_to_bf16(a)) | (oi_u32(oi_to_bf16(b)) << 16);
}

//: oi_few_f32
/* a / b to about 20 bits, for results with half as many, and without a branch. Scaled, b and its inverse are normal. */
OI_INLINE float oi_few_f32(float a, float b)
{
    const float size = fabsf(b), scale = size > 0x1p100f ? 0x1p-24f : size < 0x1p-100f ? 0x1p24f : 1.0f;
#ifdef __CUDA_ARCH__
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b * scale));
#else
    const float inverse = 1.0f / (b * scale);
#endif
    return a * scale * inverse;
}

//: oi_few_exp_f32
/* exp(x) to about 15 bits, 20 near 0, for results with half as many. */
OI_INLINE float oi_few_exp_f32(float x)
{
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(x * 0x1.715476p+0f));
    return power;
#else
    return exp2f(x * 0x1.715476p+0f);
#endif
}
