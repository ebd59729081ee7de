//: oi_exp_parts
struct oi_exp_parts { oi_pair rest; double n; };
OI_TYPE(oi_exp_parts)

//: oi_expm1_parts
/* exp(hi + lo) = 2^n * (1 + rest), where rest is within 2^-59 of its value, for sums from -1100 to 1100. */
OI_INLINE oi_exp_parts oi_expm1_parts(double hi, double lo)
{
    /* Adding and subtracting 1.5 * 2^52 rounds to an integer. */
    const double n = oi_mad_f64(hi, 0x1.71547652b82fep+0, 0x1.8p52) - 0x1.8p52;
    /* ln 2 in two parts, the first of which has 41 bits: its product with n is exact. */
    const oi_pair r = oi_exact_sum(hi - n * 0x1.62e42fefa3000p-1, lo - n * 0x1.3de6af278ece6p-42);
    const oi_pair square = oi_exact_product(r.hi, r.hi);
    /* exp(r) = 1 + r + r^2 / 2 + r^3 * p(r), |r| < 0.347 */
    double p = 0x1.1f8c97aa7b6dep-29;
    p = oi_mad_f64(p, r.hi, 0x1.af6e657347dd6p-26);
    p = oi_mad_f64(p, r.hi, 0x1.27e4cb93f0185p-22);
    p = oi_mad_f64(p, r.hi, 0x1.71ddee9591b46p-19);
    p = oi_mad_f64(p, r.hi, 0x1.a01a01adbbb87p-16);
    p = oi_mad_f64(p, r.hi, 0x1.a01a01b42bde1p-13);
    p = oi_mad_f64(p, r.hi, 0x1.6c16c16c14f33p-10);
    p = oi_mad_f64(p, r.hi, 0x1.111111110ea66p-7);
    p = oi_mad_f64(p, r.hi, 0x1.5555555555558p-5);
    p = oi_mad_f64(p, r.hi, 0x1.555555555555cp-3);
    const oi_pair s = oi_ordered_sum(r.hi, 0.5 * square.hi);
    const double tail = r.hi * square.hi * p + (r.lo + r.lo * r.hi + 0.5 * square.lo);
    return oi_make(oi_exp_parts, oi_ordered_sum(s.hi, s.lo + tail), n);
}

//: oi_exp_pair_f64
OI_INLINE double oi_exp_pair_f64(double hi, double lo)
{
    const double a = oi_pick_f64(hi > 720.0, 720.0, oi_pick_f64(hi < -760.0, -760.0, hi));
    const oi_exp_parts e = oi_expm1_parts(a, oi_pick_f64(a == hi, lo, 0.0));
    const oi_pair m = oi_ordered_sum(1.0, e.rest.hi);
    return oi_scaled_f64(m.hi + (m.lo + e.rest.lo), e.n);
}

//: oi_exp_f64
/* Measured: at most 0.76 ulp. */
OI_INLINE double oi_exp_f64(double x) { return oi_exp_pair_f64(x, 0.0); }

//: oi_exp2_f64
/* Measured: at most 0.76 ulp. */
OI_INLINE double oi_exp2_f64(double x)
{
    const double a = oi_pick_f64(x > 1030.0, 1030.0, oi_pick_f64(x < -1100.0, -1100.0, x));
    const double k = (a + 0x1.8p52) - 0x1.8p52;
    /* The fraction, times ln 2: it is in the range of the series, so that n is 0. */
    const oi_pair r = oi_exact_product(a - k, 0x1.62e42fefa39efp-1);
    const oi_exp_parts e = oi_expm1_parts(r.hi, r.lo + (a - k) * 0x1.abc9e3b39803fp-56);
    const oi_pair m = oi_ordered_sum(1.0, e.rest.hi);
    return oi_scaled_f64(m.hi + (m.lo + e.rest.lo), k + e.n);
}

//: oi_expm1_pair_f64
/* exp(x) - 1 as a double-double, halved so that it overflows only if the result does, for x from -50 to 710. */
OI_INLINE oi_pair oi_expm1_pair_f64(double x)
{
    const oi_exp_parts e = oi_expm1_parts(x, 0.0);
    const double scale = oi_power_of_two_f64(e.n - 1.0);
    const oi_pair whole = oi_exact_sum(scale, -0.5);
    return oi_pair_sum(whole, oi_make_pair(scale * e.rest.hi, scale * e.rest.lo));
}

//: oi_expm1_f64
/* Measured: at most 0.61 ulp. */
OI_INLINE double oi_expm1_f64(double x)
{
    const double a = oi_pick_f64(x > 710.0, 710.0, oi_pick_f64(x < -50.0, -50.0, x));
    const oi_pair e = oi_expm1_pair_f64(a);
    return oi_pick_f64(oi_abs_f64(x) < 0x1p-54, x, 2.0 * (e.hi + e.lo));
}

//: oi_sinh_f64
/* sinh(x) = (e + e / (e + 1)) / 2 with e = exp(x) - 1. Measured: at most 0.77 ulp. */
OI_FUNCTION double oi_sinh_f64(double x)
{
    const double a = oi_abs_f64(x);
    double y;
    if (!(a >= 0x1p-28)) {
        y = a;
    } else if (a < 40.0) {
        const oi_pair h = oi_expm1_pair_f64(a), e = oi_make_pair(2.0 * h.hi, 2.0 * h.lo);
        const oi_pair q = oi_pair_quotient(h, oi_pair_sum(oi_make_pair(1.0, 0.0), e));
        const oi_pair s = oi_pair_sum(h, q);
        y = s.hi;
    } else {
        const oi_exp_parts e = oi_expm1_parts(a < 720.0 ? a : 720.0, 0.0);
        y = oi_scaled_f64(1.0 + (e.rest.hi + e.rest.lo), e.n - 1.0);
    }
    return x != x ? x + x : oi_copysign_f64(y, x);
}

//: oi_cosh_f64
/* cosh(x) = (exp(x) + 1 / exp(x)) / 2. Measured: at most 0.53 ulp. */
OI_FUNCTION double oi_cosh_f64(double x)
{
    const double a = oi_abs_f64(x);
    const oi_exp_parts e = oi_expm1_parts(a < 720.0 ? a : a == a ? 720.0 : 0.0, 0.0);
    const oi_pair m = oi_pair_sum(oi_make_pair(1.0, 0.0), e.rest);
    double y;
    if (a < 40.0) {
        const double scale = oi_power_of_two_f64(e.n - 1.0);
        const oi_pair h = oi_make_pair(scale * m.hi, scale * m.lo);
        y = oi_pair_sum(h, oi_pair_quotient(oi_make_pair(0.25, 0.0), h)).hi;
    } else {
        y = oi_scaled_f64(m.hi, e.n - 1.0);
    }
    return x != x ? x + x : y;
}

//: oi_tanh_f64
/* tanh(x) = e / (e + 2) with e = exp(2 x) - 1. Measured: at most 0.57 ulp. */
OI_INLINE double oi_tanh_f64(double x)
{
    const double a = oi_abs_f64(x);
    const oi_pair h = oi_expm1_pair_f64(oi_pick_f64(a > 20.0, 40.0, a + a));
    const double t = oi_pair_quotient(h, oi_pair_sum(oi_make_pair(1.0, 0.0), h)).hi;
    return oi_copysign_f64(oi_pick_f64(a < 0x1p-28, a, t), x);
}
