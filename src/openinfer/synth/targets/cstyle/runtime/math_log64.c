//: oi_log_split
struct oi_log_split { oi_pair rest; double n; };
OI_TYPE(oi_log_split)

//: oi_log_parts
/* log(hi + lo) = n * ln 2 + rest for finite sums above 0, where rest has a relative error of 2^-64; lo is 0 if hi is
   subnormal or above 2^60. */
OI_INLINE oi_log_split oi_log_parts(double hi, double lo)
{
    const bool tiny = hi < 0x1p-1022;
    const uint64_t u = oi_bits_f64_u64(hi * oi_pick_f64(tiny, 0x1p54, 1.0)), offset = oi_u64(1024) << 52;
    /* A mantissa from sqrt(1/2) to sqrt(2), and its exponent. */
    const uint64_t field = (u - 0x3fe6a09e667f3bcdu + offset) >> 52;
    const double m = oi_bits_u64_f64(u - (field << 52) + offset);
    /* The exponent, in the lowest bits of 2^52, becomes a float. Where 2^-n is out of range, lo is 0. */
    const double n = oi_bits_u64_f64(0x4330000000000000u | field) - (0x1p52 + 1024.0) - oi_pick_f64(tiny, 54.0, 0.0);
    const double tail = oi_pick_f64(lo == 0.0, 0.0, lo * oi_bits_u64_f64(oi_u64(2047u - field) << 52));
    /* log(1 + f) = 2 atanh(s) with s = f / (2 + f) */
    const oi_pair f = oi_exact_sum(m - 1.0, tail);
    const oi_pair below = oi_ordered_sum(2.0, f.hi);
    const oi_pair s = oi_pair_quotient(f, oi_make_pair(below.hi, below.lo + f.lo));
    const oi_pair square = oi_pair_product(s, s);
    const oi_pair two_thirds = oi_make_pair(0x1.5555555555555p-1, 0x1.5555555555555p-55);
    const oi_pair third = oi_pair_product(oi_pair_product(square, s), two_thirds);
    const double z = square.hi;
    double p = 0x1.86b3189ee0d3fp-4;
    p = oi_mad_f64(p, z, 0x1.5ec86067e5cf5p-4);
    p = oi_mad_f64(p, z, 0x1.865bb8085a2d3p-4);
    p = oi_mad_f64(p, z, 0x1.af2653f8d0630p-4);
    p = oi_mad_f64(p, z, 0x1.e1e1ecff57147p-4);
    p = oi_mad_f64(p, z, 0x1.111110fd13cf3p-3);
    p = oi_mad_f64(p, z, 0x1.3b13b13b4400ap-3);
    p = oi_mad_f64(p, z, 0x1.745d1745d1285p-3);
    p = oi_mad_f64(p, z, 0x1.c71c71c71c721p-3);
    p = oi_mad_f64(p, z, 0x1.2492492492492p-2);
    p = oi_mad_f64(p, z, 0x1.999999999999ap-2);
    const oi_pair sum = oi_ordered_sum(2.0 * s.hi, third.hi);
    const double rest = sum.lo + (2.0 * s.lo + third.lo + z * z * s.hi * p);
    return oi_make(oi_log_split, oi_ordered_sum(sum.hi, rest), n);
}

//: oi_log_pair_f64
/* log(hi + lo) as a double-double. */
OI_INLINE oi_pair oi_log_pair_f64(double hi, double lo)
{
    const oi_log_split l = oi_log_parts(hi, lo);
    /* The high part of ln 2 has 41 bits: its product with n is exact. */
    const oi_pair base = oi_exact_sum(l.n * 0x1.62e42fefa3000p-1, l.n * 0x1.3de6af278ece6p-42);
    return oi_pair_sum(base, l.rest);
}

//: oi_log_special_f64
/* The special values that all logarithms share; y where the result is finite. */
OI_INLINE double oi_log_special_f64(double x, double y)
{
    const double special = oi_pick_f64(x == 0.0, -OI_INF64, oi_pick_f64(x < 0.0, OI_NAN64, x));
    return oi_pick_f64(oi_bits_f64_u64(x) - 1u < 0x7fefffffffffffffu, y, special);
}

//: oi_log_f64
/* Measured: at most 0.501 ulp. */
OI_INLINE double oi_log_f64(double x)
{
    return oi_log_special_f64(x, oi_log_pair_f64(x, 0.0).hi);
}

//: oi_log2_f64
/* Measured: at most 0.501 ulp. */
OI_INLINE double oi_log2_f64(double x)
{
    const oi_log_split l = oi_log_parts(x, 0.0);
    const oi_pair part = oi_pair_product(l.rest, oi_make_pair(0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56));
    const oi_pair sum = oi_exact_sum(l.n, part.hi);
    return oi_log_special_f64(x, sum.hi + (sum.lo + part.lo));
}

//: oi_log10_f64
/* Measured: at most 0.501 ulp. */
OI_INLINE double oi_log10_f64(double x)
{
    const oi_pair l = oi_log_pair_f64(x, 0.0);
    const oi_pair y = oi_pair_product(l, oi_make_pair(0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57));
    return oi_log_special_f64(x, y.hi);
}

//: oi_log1p_pair_f64
/* log(1 + hi + lo) as a double-double, for sums above -1 and below 2^1000. */
OI_INLINE oi_pair oi_log1p_pair_f64(double hi, double lo)
{
    const oi_pair s = oi_exact_sum(1.0, hi);
    const oi_pair u = oi_ordered_sum(s.hi, s.lo + lo);
    return oi_log_pair_f64(u.hi, oi_pick_f64(u.hi > 0x1p60, 0.0, u.lo));
}

//: oi_log1p_f64
/* Measured: at most 0.501 ulp. */
OI_INLINE double oi_log1p_f64(double x)
{
    const double y = oi_pick_f64(oi_abs_f64(x) < 0x1p-54, x, oi_log1p_pair_f64(x, 0.0).hi);
    const double special = oi_pick_f64(x == -1.0, -OI_INF64, oi_pick_f64(x < -1.0, OI_NAN64, x));
    const bool below = x > -1.0, above = x < OI_INF64;
    return oi_pick_f64(oi_both(below, above), y, special);
}

//: oi_asinh_f64
/* asinh(x) = log(1 + x + x^2 / (1 + sqrt(1 + x^2))). Measured: at most 0.501 ulp. */
OI_FUNCTION double oi_asinh_f64(double x)
{
    const double a = oi_abs_f64(x);
    double y;
    if (!(a >= 0x1p-28) || a == OI_INF64) {
        y = a;
    } else if (a < 0x1p28) {
        const oi_pair one = oi_make_pair(1.0, 0.0), square = oi_exact_product(a, a);
        const oi_pair below = oi_pair_sum(one, oi_pair_sqrt(oi_pair_sum(one, square)));
        const oi_pair u = oi_pair_sum(oi_make_pair(a, 0.0), oi_pair_quotient(square, below));
        y = oi_log1p_pair_f64(u.hi, u.lo).hi;
    } else {
        y = oi_pair_sum(oi_log_pair_f64(a, 0.0), oi_make_pair(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56)).hi;
    }
    return x != x ? x + x : oi_copysign_f64(y, x);
}

//: oi_acosh_f64
/* acosh(x) = log(1 + t + sqrt(2 t + t^2)) with t = x - 1. Measured: at most 0.501 ulp. */
OI_FUNCTION double oi_acosh_f64(double x)
{
    if (!(x >= 1.0) || x == OI_INF64)
        return x < 1.0 ? OI_NAN64 : x + x;
    if (x >= 0x1p28)
        return oi_pair_sum(oi_log_pair_f64(x, 0.0), oi_make_pair(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56)).hi;
    const double t = x - 1.0;
    const oi_pair root = oi_pair_sqrt(oi_pair_sum(oi_exact_product(t, t), oi_make_pair(2.0 * t, 0.0)));
    const oi_pair u = oi_pair_sum(oi_make_pair(t, 0.0), root);
    return oi_log1p_pair_f64(u.hi, u.lo).hi;
}

//: oi_atanh_f64
/* atanh(x) = log(1 + 2 x / (1 - x)) / 2. Measured: at most 0.501 ulp. */
OI_FUNCTION double oi_atanh_f64(double x)
{
    const double a = oi_abs_f64(x);
    if (!(a < 1.0))
        return a == 1.0 ? oi_copysign_f64(OI_INF64, x) : a > 1.0 ? OI_NAN64 : x + x;
    if (a < 0x1p-28)
        return x;
    const oi_pair q = oi_pair_quotient(oi_make_pair(2.0 * a, 0.0), oi_exact_sum(1.0, -a));
    return oi_copysign_f64(0.5 * oi_log1p_pair_f64(q.hi, q.lo).hi, x);
}

//: oi_pow_f64
/* x^y = exp(y * log x), with the logarithm and the product as double-doubles. Measured: at most 0.75 ulp. */
OI_FUNCTION double oi_pow_f64(double x, double y)
{
    if (y == 0.0 || x == 1.0)
        return 1.0;
    if (x != x || y != y)
        return x + y;
    const double a = oi_abs_f64(x);
    const bool whole = oi_trunc_f64(y) == y;
    const bool odd = whole && oi_abs_f64(y) < 0x1p53 && oi_trunc_f64(0.5 * y) != 0.5 * y;
    if (x < 0.0 && !whole && a < OI_INF64)
        return OI_NAN64;
    double size;
    if (a == 0.0 || a == OI_INF64) {
        size = (a == 0.0) == (y > 0.0) ? 0.0 : OI_INF64;
    } else if (a == 1.0) {
        size = 1.0;
    } else {
        const oi_pair l = oi_log_pair_f64(a, 0.0);
        const double about = y * l.hi;
        if (oi_abs_f64(about) < 800.0) {
            const oi_pair p = oi_exact_product(y, l.hi);
            const oi_pair s = oi_ordered_sum(p.hi, p.lo + y * l.lo);
            size = oi_exp_pair_f64(s.hi, s.lo);
        } else {
            size = about > 0.0 ? OI_INF64 : 0.0;
        }
    }
    return odd && oi_signbit_f64(x) ? -size : size;
}
