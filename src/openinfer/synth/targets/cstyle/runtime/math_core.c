//: oi_pick_f32
/* c ? a : b without a branch, for values that are computed anyway: loops over it can be vectorized. */
OI_INLINE float oi_pick_f32(bool c, float a, float b)
{
    const uint32_t mask = 0u - oi_u32(c);
    return oi_bits_u32_f32((oi_bits_f32_u32(a) & mask) | (oi_bits_f32_u32(b) & ~mask));
}

//: oi_pick_f64
OI_INLINE double oi_pick_f64(bool c, double a, double b)
{
    const uint64_t mask = oi_u64(0) - oi_u64(c);
    return oi_bits_u64_f64((oi_bits_f64_u64(a) & mask) | (oi_bits_f64_u64(b) & ~mask));
}

//: oi_mad_f32
/* a * b + c with one rounding or two, whichever is fast: for polynomials only. */
OI_INLINE float oi_mad_f32(float a, float b, float c)
{
#if OI_FUSED
    return oi_fused_f32(a, b, c);
#else
    return a * b + c;
#endif
}

//: oi_mad_f64 f64
OI_INLINE double oi_mad_f64(double a, double b, double c)
{
#if OI_FUSED
    return oi_fused_f64(a, b, c);
#else
    return a * b + c;
#endif
}

//: oi_pair f64
/* A double-double: hi + lo, where lo is at most half a unit in the last place of hi. */
struct oi_pair { double hi, lo; };
OI_TYPE(oi_pair)

//: oi_make_pair
#define oi_make_pair(hi, lo) oi_make(oi_pair, hi, lo)

//: oi_ordered_sum
/* a + b exactly, for |a| >= |b| or a = 0. */
OI_INLINE oi_pair oi_ordered_sum(double a, double b)
{
    const double s = a + b;
    return oi_make_pair(s, b - (s - a));
}

//: oi_exact_sum
/* a + b exactly. */
OI_INLINE oi_pair oi_exact_sum(double a, double b)
{
    const double s = a + b, t = s - a;
    return oi_make_pair(s, (a - (s - t)) + (b - t));
}

//: oi_exact_product
/* a * b exactly, unless the product is below 2^-960 or a factor above 2^990. */
OI_INLINE oi_pair oi_exact_product(double a, double b)
{
    const double p = a * b;
#if OI_FUSED
    return oi_make_pair(p, oi_fused_f64(a, b, -p));
#else
    /* Multiplying by 2^27 + 1 splits a factor into halves whose products are exact. */
    const double ta = a * 134217729.0, tb = b * 134217729.0;
    const double ah = ta - (ta - a), bh = tb - (tb - b);
    const double al = a - ah, bl = b - bh;
    return oi_make_pair(p, ((ah * bh - p) + ah * bl + al * bh) + al * bl);
#endif
}

//: oi_pair_sum
OI_INLINE oi_pair oi_pair_sum(oi_pair a, oi_pair b)
{
    const oi_pair s = oi_exact_sum(a.hi, b.hi);
    return oi_ordered_sum(s.hi, s.lo + (a.lo + b.lo));
}

//: oi_pair_product
OI_INLINE oi_pair oi_pair_product(oi_pair a, oi_pair b)
{
    const oi_pair p = oi_exact_product(a.hi, b.hi);
    return oi_ordered_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

//: oi_pair_quotient
OI_INLINE oi_pair oi_pair_quotient(oi_pair a, oi_pair b)
{
    const double q = a.hi / b.hi;
    const oi_pair p = oi_exact_product(q, b.hi);
    const double rest = ((a.hi - p.hi) - p.lo) + (a.lo - q * b.lo);
    return oi_ordered_sum(q, rest / b.hi);
}

//: oi_pair_sqrt
/* The square root of a non-negative number. */
OI_INLINE oi_pair oi_pair_sqrt(oi_pair a)
{
    const double r = oi_sqrt_f64(a.hi);
    const oi_pair p = oi_exact_product(r, r);
    const double rest = ((a.hi - p.hi) - p.lo) + a.lo;
    return oi_ordered_sum(r, r > 0.0 ? rest / (r + r) : 0.0);
}

//: oi_power_of_two_f64
/* 2^n for integers n from -1022 to 1023: the sum has n + 1023 in its lowest bits. */
OI_INLINE double oi_power_of_two_f64(double n)
{
    return oi_bits_u64_f64(oi_bits_f64_u64(n + (0x1.8p52 + 1023.0)) << 52);
}

//: oi_scaled_f64
/* x * 2^n for integers n from -2044 to 2046, rounded once unless the result is subnormal. */
OI_INLINE double oi_scaled_f64(double x, double n)
{
    const double halved = (0.5 * n + 0x1.8p52) - 0x1.8p52;
    return x * oi_power_of_two_f64(halved) * oi_power_of_two_f64(n - halved);
}
