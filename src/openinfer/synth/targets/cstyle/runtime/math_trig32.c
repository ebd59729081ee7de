//: oi_quarter f64 u64
struct oi_quarter { double f; uint64_t k; };
OI_TYPE(oi_quarter)

//: oi_quarters
/* |x| = (k + f) * pi / 2 for every finite x, with |f| < 0.501 to full precision and k correct modulo 4: |x| is
   m * 16^i, where m is an integer unless i is 0, so that multiples of 4 can be dropped from 16^i * 2 / pi. That factor
   has three parts. The first two have 29 bits and m has 24: their products are exact. */
OI_INLINE oi_quarter oi_quarters(float x)
{
    OI_TABLE double upper[27] = {
        0x1.45f306d000000p-1, 0x1.17cc1b7000000p+1, 0x1.7cc1b72000000p+1, 0x1.cc1b727000000p+1,
        0x1.836e4e4000000p+0, 0x1.b727220000000p-3, 0x1.b727220000000p+1, 0x1.727220a000000p+1,
        0x1.27220a9000000p+1, 0x1.c882a50000000p-1, 0x1.220a94f000000p+1, 0x1.054a7f0000000p-2,
        0x1.529fc20000000p-4, 0x1.529fc26000000p+0, 0x1.29fc274000000p+0, 0x1.4fe13ab000000p+1,
        0x1.fc2757c000000p+0, 0x1.e13abe8000000p+1, 0x1.3abe8f0000000p-3, 0x1.3abe8fa000000p+1,
        0x1.abe8fa9000000p+1, 0x1.7d1f534000000p+0, 0x1.e8fa9a6000000p+1, 0x1.1f534dc000000p+0,
        0x1.f534ddc000000p+0, 0x1.a9a6ee0000000p+1, 0x1.34ddc0c000000p+0,
    };
    OI_TABLE double middle[27] = {
        0x1.9391054000000p-30, 0x1.3910548000000p-30, 0x1.c882a52000000p-29, 0x1.1054a7c000000p-30,
        0x1.054a7f0000000p-30, 0x1.529fc20000000p-32, 0x1.529fc27000000p-28, 0x1.29fc275000000p-28,
        0x1.3f84eae000000p-29, 0x1.fc2757d000000p-28, 0x1.c2757d1000000p-28, 0x1.3abe8f8000000p-31,
        0x1.d5f47d4000000p-30, 0x1.57d1f53000000p-28, 0x1.7d1f534000000p-28, 0x1.d1f534d000000p-28,
        0x1.1f534dd000000p-28, 0x1.f534ddc000000p-28, 0x1.534ddc0000000p-28, 0x1.34ddc0d000000p-28,
        0x1.4ddc0db000000p-28, 0x1.bb81b6c000000p-29, 0x1.dc0db62000000p-28, 0x1.c0db629000000p-28,
        0x1.b6c52a0000000p-33, 0x1.b6c52b2000000p-29, 0x1.b629599000000p-28,
    };
    OI_TABLE double lower[27] = {
        0x1.4fe13abe8fa9ap-59, 0x1.3f84eafa3ea6ap-57, 0x1.f84eafa3ea69cp-57, 0x1.84eafa3ea69bcp-57,
        0x1.3abe8fa9a6ee0p-59, 0x1.d5f47d4d37703p-58, 0x1.5f47d4d377037p-58, 0x1.f47d4d377036ep-58,
        0x1.a3ea69bb81b6cp-57, 0x1.f534ddc0db629p-60, 0x1.ea69bb81b6c53p-57, 0x1.4d377036d8a56p-58,
        0x1.a6ee06db14acdp-59, 0x1.377036d8a5665p-58, 0x1.bb81b6c52b328p-57, 0x1.b81b6c52b3279p-57,
        0x1.81b6c52b32788p-57, 0x1.b6c52b3278872p-61, 0x1.b6c52b3278872p-57, 0x1.6c52b32788721p-57,
        0x1.8a5664f10e410p-58, 0x1.4acc9e21c8210p-59, 0x1.2b32788720840p-57, 0x1.664f10e4107f9p-58,
        0x1.3278872083fcap-57, 0x1.278872083fca3p-57, 0x1.e21c820ff28b2p-59,
    };
    const uint32_t u = oi_bits_f32_u32(x) & 0x7fffffffu, field = u >> 23;
    const int32_t i = oi_i32(((field - 150u) & (0u - oi_u32(field > 150u))) >> 2);
    const double m = oi_f64(oi_bits_u32_f32(u - (oi_u32(i) << 25)));
    const double first = m * upper[i], second = m * middle[i], third = m * lower[i];
    const double shifted = (first + second) + 0x1.8p52;
    const double k = shifted - 0x1.8p52;
    return oi_make(oi_quarter, ((first - k) + second) + third, oi_bits_f64_u64(shifted));
}

//: oi_sin_quarter
/* sin(f * pi / 2) for |f| < 0.501 */
OI_INLINE double oi_sin_quarter(double f)
{
    const double z = f * f;
    double p = 0x1.4bc1bbde03439p-13;
    p = oi_mad_f64(p, z, -0x1.32ca831fdf748p-8);
    p = oi_mad_f64(p, z, 0x1.466bba871b0dfp-4);
    p = oi_mad_f64(p, z, -0x1.4abbce5645ec8p-1);
    p = oi_mad_f64(p, z, 0x1.921fb5443aefep+0);
    return p * f;
}

//: oi_cos_quarter
/* cos(f * pi / 2) for |f| < 0.501 */
OI_INLINE double oi_cos_quarter(double f)
{
    const double z = f * f;
    double p = 0x1.d9ce5b071bb2ep-11;
    p = oi_mad_f64(p, z, -0x1.55c5c288e9349p-6);
    p = oi_mad_f64(p, z, 0x1.03c1dd4b6090cp-2);
    p = oi_mad_f64(p, z, -0x1.3bd3cc7a9b427p+0);
    return oi_mad_f64(p, z, 1.0);
}

//: oi_sin_f32
/* Measured: at most 0.502 ulp. */
OI_INLINE float oi_sin_f32(float x)
{
    const oi_quarter a = oi_quarters(x);
    const double y = oi_pick_f64((a.k & 1u) != 0, oi_cos_quarter(a.f), oi_sin_quarter(a.f));
    /* The second bit of k flips the sign. */
    const float flipped = oi_f32(oi_bits_u64_f64(oi_bits_f64_u64(y) ^ ((a.k & 2u) << 62)));
    const float r = oi_bits_u32_f32(oi_bits_f32_u32(flipped) ^ (oi_bits_f32_u32(x) & 0x80000000u));
    return oi_pick_f32(oi_abs_f32(x) < OI_INF, r, x - x);
}

//: oi_cos_f32
/* Measured: at most 0.502 ulp. */
OI_INLINE float oi_cos_f32(float x)
{
    const oi_quarter a = oi_quarters(x);
    const double y = oi_pick_f64((a.k & 1u) != 0, oi_sin_quarter(a.f), oi_cos_quarter(a.f));
    const float r = oi_f32(oi_bits_u64_f64(oi_bits_f64_u64(y) ^ (((a.k + 1u) & 2u) << 62)));
    return oi_pick_f32(oi_abs_f32(x) < OI_INF, r, x - x);
}

//: oi_tan_f32
/* Measured: at most 0.502 ulp. */
OI_INLINE float oi_tan_f32(float x)
{
    const oi_quarter a = oi_quarters(x);
    const double s = oi_sin_quarter(a.f), c = oi_cos_quarter(a.f);
    const bool odd = (a.k & 1u) != 0;
    const float y = oi_f32(oi_pick_f64(odd, -c, s) / oi_pick_f64(odd, s, c));
    const float r = oi_bits_u32_f32(oi_bits_f32_u32(y) ^ (oi_bits_f32_u32(x) & 0x80000000u));
    return oi_pick_f32(oi_abs_f32(x) < OI_INF, r, x - x);
}

//: oi_atan_short
/* atan(t) for t from 0 to 1 */
OI_INLINE double oi_atan_short(double t)
{
    const double z = t * t;
    double p = -0x1.63cb89ad958c4p-11;
    p = oi_mad_f64(p, z, 0x1.3bdb41073c5f4p-8);
    p = oi_mad_f64(p, z, -0x1.06e092bdef0d8p-6);
    p = oi_mad_f64(p, z, 0x1.179cfbfecb0f1p-5);
    p = oi_mad_f64(p, z, -0x1.bc3d585f26133p-5);
    p = oi_mad_f64(p, z, 0x1.28b6a69c87b0bp-4);
    p = oi_mad_f64(p, z, -0x1.6fd34189e2fadp-4);
    p = oi_mad_f64(p, z, 0x1.c66250a32da4dp-4);
    p = oi_mad_f64(p, z, -0x1.24896e1f283dep-3);
    p = oi_mad_f64(p, z, 0x1.99992c10252ebp-3);
    p = oi_mad_f64(p, z, -0x1.555554657e55ep-2);
    return oi_mad_f64(p * z, t, t);
}

//: oi_atan_f32
/* Measured: at most 0.502 ulp. */
OI_INLINE float oi_atan_f32(float x)
{
    const double a = oi_f64(oi_abs_f32(x));
    const bool steep = a > 1.0;
    const double t = oi_atan_short(oi_pick_f64(steep, 1.0, a) / oi_pick_f64(steep, a, 1.0));
    return oi_copysign_f32(oi_f32(oi_pick_f64(steep, 0x1.921fb54442d18p+0 - t, t)), x);
}

//: oi_atan2_f32
/* Measured: at most 0.502 ulp. */
OI_INLINE float oi_atan2_f32(float y, float x)
{
    const double ay = oi_f64(oi_abs_f32(y)), ax = oi_f64(oi_abs_f32(x));
    const bool steep = ay > ax;
    const double n = oi_pick_f64(steep, ax, ay), d = oi_pick_f64(steep, ay, ax);
    /* 0 / 0 counts as 0, and infinity / infinity as 1. */
    const double ratio = oi_pick_f64(n == d, oi_pick_f64(d == 0.0, 0.0, 1.0), n / d);
    const double t = oi_atan_short(ratio);
    const double u = oi_pick_f64(steep, 0x1.921fb54442d18p+0 - t, t);
    const double a = oi_pick_f64(oi_signbit_f32(x), 0x1.921fb54442d18p+1 - u, u);
    const bool x_is_nan = x != x, y_is_nan = y != y;
    return oi_pick_f32(oi_either(x_is_nan, y_is_nan), x + y, oi_copysign_f32(oi_f32(a), y));
}

//: oi_asin_short
/* asin(x) for |x| <= 1/2 and z = x^2 */
OI_INLINE double oi_asin_short(double x, double z)
{
    double p = 0x1.1b2ca9b037242p-5;
    p = oi_mad_f64(p, z, 0x1.f07c1f2a35c17p-8);
    p = oi_mad_f64(p, z, 0x1.92c58ec6f90b6p-6);
    p = oi_mad_f64(p, z, 0x1.ed6b318f8ad55p-6);
    p = oi_mad_f64(p, z, 0x1.6dda358e31bf9p-5);
    p = oi_mad_f64(p, z, 0x1.3332ac4bc6f73p-4);
    p = oi_mad_f64(p, z, 0x1.555556033eb26p-3);
    return oi_mad_f64(p * z, x, x);
}

//: oi_asin_f32
/* asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2)) for x > 1/2. Measured: at most 0.502 ulp. */
OI_INLINE float oi_asin_f32(float x)
{
    const double a = oi_f64(oi_abs_f32(x));
    const bool large = a > 0.5;
    const double z = oi_pick_f64(large, 0.5 - 0.5 * a, a * a);
    const double s = oi_asin_short(oi_pick_f64(large, oi_sqrt_f64(z), a), z);
    const float y = oi_f32(oi_pick_f64(large, 0x1.921fb54442d18p+0 - (s + s), s));
    return oi_pick_f32(a > 1.0, OI_NAN, oi_copysign_f32(y, x));
}

//: oi_acos_f32
/* acos(x) = pi / 2 - asin(x), or 2 asin(sqrt((1 - x) / 2)) for x > 1/2; acos(-x) = pi - acos(x).
   Measured: at most 0.502 ulp. */
OI_INLINE float oi_acos_f32(float x)
{
    const double a = oi_f64(oi_abs_f32(x));
    const bool large = a > 0.5;
    const double z = oi_pick_f64(large, 0.5 - 0.5 * a, a * a);
    const double s = oi_asin_short(oi_pick_f64(large, oi_sqrt_f64(z), a), z);
    const double t = oi_pick_f64(large, s + s, 0x1.921fb54442d18p+0 - s);
    const float y = oi_f32(oi_pick_f64(oi_f64(x) < 0.0, 0x1.921fb54442d18p+1 - t, t));
    return oi_pick_f32(a > 1.0, OI_NAN, y);
}
