//: OI_FUSED
/* Whether fused multiply-add is an instruction: a call into a library would be slow and is not allowed. */
#if defined(__FMA__) || (defined(__FP_FAST_FMA) && defined(__FP_FAST_FMAF)) \
    || (defined(__ARM_FEATURE_FMA) && defined(__ARM_FP) && (__ARM_FP & 8))
#define OI_FUSED 1
#else
#define OI_FUSED 0
#endif

//: OI_INLINE
/* Inlined whatever the size of the caller: a call that is left in a loop keeps it from becoming vector code. */
#if defined(__GNUC__)
#define OI_INLINE static inline __attribute__((always_inline))
#else
#define OI_INLINE static inline
#endif

//: OI_SPARE
/* A function that is there in case the target lacks an instruction. */
#if defined(__GNUC__)
#define OI_SPARE static inline __attribute__((unused))
#else
#define OI_SPARE static inline
#endif

//: oi_pick_f32 OI_INLINE oi_bits_u32_f32 oi_bits_f32_u32
/* c ? a : b without a branch, for values that are computed anyway: loops over it become vector code. */
OI_INLINE float oi_pick_f32(bool c, float a, float b)
{
    const uint32_t mask = 0u - (uint32_t)c;
    return oi_bits_u32_f32((oi_bits_f32_u32(a) & mask) | (oi_bits_f32_u32(b) & ~mask));
}

//: oi_pick_f64 OI_INLINE oi_bits_u64_f64 oi_bits_f64_u64
OI_INLINE double oi_pick_f64(bool c, double a, double b)
{
    const uint64_t mask = (uint64_t)0 - (uint64_t)c;
    return oi_bits_u64_f64((oi_bits_f64_u64(a) & mask) | (oi_bits_f64_u64(b) & ~mask));
}

//: oi_mad_f32 OI_INLINE OI_FUSED
/* a * b + c with one rounding or two, whichever is fast: for polynomials only. */
OI_INLINE float oi_mad_f32(float a, float b, float c)
{
#if OI_FUSED
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

//: oi_mad_f64 OI_INLINE OI_FUSED
OI_INLINE double oi_mad_f64(double a, double b, double c)
{
#if OI_FUSED
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

//: oi_pair
/* A number of twice the precision: hi + lo, where lo is at most half a unit in the last place of hi. */
typedef struct { double hi, lo; } oi_pair;

//: oi_ordered_sum OI_INLINE oi_pair
/* a + b exactly, for |a| >= |b| or a = 0. */
OI_INLINE oi_pair oi_ordered_sum(double a, double b)
{
    const double s = a + b;
    return (oi_pair){ s, b - (s - a) };
}

//: oi_exact_sum OI_INLINE oi_pair
/* a + b exactly. */
OI_INLINE oi_pair oi_exact_sum(double a, double b)
{
    const double s = a + b, t = s - a;
    return (oi_pair){ s, (a - (s - t)) + (b - t) };
}

//: oi_exact_product OI_INLINE oi_pair OI_FUSED
/* a * b exactly, unless the product is below 2^-960 or a factor above 2^990. */
OI_INLINE oi_pair oi_exact_product(double a, double b)
{
    const double p = a * b;
#if OI_FUSED
    return (oi_pair){ p, __builtin_fma(a, b, -p) };
#else
    /* Multiplying by 2^27 + 1 splits a factor into halves whose products are exact. */
    const double ta = a * 134217729.0, tb = b * 134217729.0;
    const double ah = ta - (ta - a), bh = tb - (tb - b);
    const double al = a - ah, bl = b - bh;
    return (oi_pair){ p, ((ah * bh - p) + ah * bl + al * bh) + al * bl };
#endif
}

//: oi_pair_sum oi_exact_sum oi_ordered_sum
OI_INLINE oi_pair oi_pair_sum(oi_pair a, oi_pair b)
{
    const oi_pair s = oi_exact_sum(a.hi, b.hi);
    return oi_ordered_sum(s.hi, s.lo + (a.lo + b.lo));
}

//: oi_pair_product oi_exact_product oi_ordered_sum
OI_INLINE oi_pair oi_pair_product(oi_pair a, oi_pair b)
{
    const oi_pair p = oi_exact_product(a.hi, b.hi);
    return oi_ordered_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

//: oi_pair_quotient oi_exact_product oi_ordered_sum
OI_INLINE oi_pair oi_pair_quotient(oi_pair a, oi_pair b)
{
    const double q = a.hi / b.hi;
    const oi_pair p = oi_exact_product(q, b.hi);
    const double rest = ((a.hi - p.hi) - p.lo) + (a.lo - q * b.lo);
    return oi_ordered_sum(q, rest / b.hi);
}

//: oi_pair_sqrt oi_exact_product oi_ordered_sum oi_sqrt_f64
/* The root of a number that is not negative. */
OI_INLINE oi_pair oi_pair_sqrt(oi_pair a)
{
    const double r = oi_sqrt_f64(a.hi);
    const oi_pair p = oi_exact_product(r, r);
    const double rest = ((a.hi - p.hi) - p.lo) + a.lo;
    return oi_ordered_sum(r, r > 0.0 ? rest / (r + r) : 0.0);
}

//: oi_power_of_two_f64 OI_INLINE oi_bits_u64_f64 oi_bits_f64_u64
/* 2^n for whole n from -1022 to 1023: the sum has n + 1023 in its last bits. */
OI_INLINE double oi_power_of_two_f64(double n)
{
    return oi_bits_u64_f64(oi_bits_f64_u64(n + (0x1.8p52 + 1023.0)) << 52);
}

//: oi_scaled_f64 oi_power_of_two_f64
/* x * 2^n for whole n from -2044 to 2046, rounded once unless the result is subnormal. */
OI_INLINE double oi_scaled_f64(double x, double n)
{
    const double half = (0.5 * n + 0x1.8p52) - 0x1.8p52;
    return x * oi_power_of_two_f64(half) * oi_power_of_two_f64(n - half);
}
