//: oi_ssat
/* Saturates to a signed integer of a number of bits; oi_usat, to an unsigned one. */
#if defined(__ARM_FEATURE_SAT)
#include <arm_acle.h>
#define oi_ssat(x, bits) __ssat(x, bits)
#else
#define oi_ssat(x, bits) oi_limited(x, -(1 << ((bits) - 1)), (1 << ((bits) - 1)) - 1)
#endif
//: oi_usat
#if defined(__ARM_FEATURE_SAT)
#include <arm_acle.h>
#define oi_usat(x, bits) ((int32_t)__usat(x, bits))
#else
#define oi_usat(x, bits) oi_limited(x, 0, (1 << (bits)) - 1)
#endif
//: oi_limited
/* Clamps a number. */
OI_SPARE int32_t oi_limited(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

//: oi_steps_f32
/* Rounds to the nearest integer, halves to even, and saturates to 21 bits; NaN becomes 0. */
OI_SPARE int32_t oi_steps_f32(float x)
{
    const float n = oi_rint_f32(x);
    return n != n ? 0 : n > 1048575.0f ? 1048575 : n < -1048576.0f ? -1048576 : (int32_t)n;
}
//: oi_whole_f32
/* The same, saturated to 21 bits or more; oi_qadd is a sum that may saturate far beyond. Only for values that are then
   saturated to fewer bits. */
#if defined(__GNUC__) && defined(__thumb2__) && defined(__ARM_FP) && (__ARM_FP & 4)
static inline int32_t oi_whole_f32(float x)
{
    int32_t n;
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(n) : "t"(x));
    return n;
}
#else
#define oi_whole_f32(x) oi_steps_f32(x)
#endif
//: oi_qadd
#if defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>
#define oi_qadd(a, b) __qadd(a, b)
#elif defined(__thumb2__) && defined(__ARM_FP) && (__ARM_FP & 4)
static inline int32_t oi_qadd(int32_t a, int32_t b)
{
    const int32_t high = 1 << 30, low = -high;
    return (a > high ? high : a < low ? low : a) + b;
}
#else
#define oi_qadd(a, b) ((a) + (b))
#endif
