//: oi_nextafter_f32
/* The next value from a towards b; b if they are equal. */
OI_FUNCTION float oi_nextafter_f32(float a, float b)
{
    const uint32_t u = oi_bits_f32_u32(a);
    const bool away = (a < b) == (a > 0.0f);
    const uint32_t next = a == 0.0f ? (oi_bits_f32_u32(b) & 0x80000000u) | 1u : away ? u + 1u : u - 1u;
    return a != a || b != b ? a + b : a == b ? b : oi_bits_u32_f32(next);
}

//: oi_nextafter_f64
OI_FUNCTION double oi_nextafter_f64(double a, double b)
{
    const uint64_t u = oi_bits_f64_u64(a);
    const bool away = (a < b) == (a > 0.0);
    const uint64_t next = a == 0.0 ? (oi_bits_f64_u64(b) & 0x8000000000000000u) | 1u : away ? u + 1u : u - 1u;
    return a != a || b != b ? a + b : a == b ? b : oi_bits_u64_f64(next);
}

//: oi_fmod_f32 u64
/* a - trunc(a / b) * b exactly, with the sign of a: long division of the mantissas, 40 bits at a time. */
OI_FUNCTION float oi_fmod_f32(float a, float b)
{
    const uint32_t sign = oi_bits_f32_u32(a) & 0x80000000u;
    const uint32_t ua = oi_bits_f32_u32(a) & 0x7fffffffu, ub = oi_bits_f32_u32(b) & 0x7fffffffu;
    if (ua >= 0x7f800000u || ub > 0x7f800000u || ub == 0)
        return a != a || b != b ? a + b : OI_NAN;
    if (ua < ub)
        return a;
    uint32_t ea = ua >> 23, eb = ub >> 23;
    const uint32_t mb = (ub & 0x7fffffu) | (eb != 0u ? 0x800000u : 0u);
    uint64_t rest = (ua & 0x7fffffu) | (ea != 0u ? 0x800000u : 0u);
    ea += oi_u32(ea == 0u);
    eb += oi_u32(eb == 0u);
    uint32_t shift = ea - eb;
    rest %= mb;
    while (shift > 0 && rest != 0) {
        const uint32_t step = shift < 40 ? shift : 40;
        rest = (rest << step) % mb;
        shift -= step;
    }
    /* The remainder is below 2^24, so it is exact in f32; it counts units of 2^(eb - 150). */
    const int32_t exponent = oi_i32(eb) - 150, halved = exponent / 2;
    const float scale = oi_bits_u32_f32(oi_u32(halved + 127) << 23);
    const float other = oi_bits_u32_f32(oi_u32(exponent - halved + 127) << 23);
    return oi_bits_u32_f32(oi_bits_f32_u32(oi_f32(rest) * scale * other) | sign);
}

//: oi_fmod_f64
OI_FUNCTION double oi_fmod_f64(double a, double b)
{
    const uint64_t sign = oi_bits_f64_u64(a) & 0x8000000000000000u;
    const uint64_t ua = oi_bits_f64_u64(a) & 0x7fffffffffffffffu, ub = oi_bits_f64_u64(b) & 0x7fffffffffffffffu;
    const uint64_t infinite = 0x7ff0000000000000u, fraction = 0xfffffffffffffu, one = 0x10000000000000u;
    if (ua >= infinite || ub > infinite || ub == 0)
        return a != a || b != b ? a + b : OI_NAN64;
    if (ua < ub)
        return a;
    uint32_t ea = oi_u32(ua >> 52), eb = oi_u32(ub >> 52);
    const uint64_t mb = (ub & fraction) | (eb != 0u ? one : 0u);
    uint64_t rest = (ua & fraction) | (ea != 0u ? one : 0u);
    ea += oi_u32(ea == 0u);
    eb += oi_u32(eb == 0u);
    uint32_t shift = ea - eb;
    rest %= mb;
    while (shift > 0 && rest != 0) {
        const uint32_t step = shift < 11 ? shift : 11;
        rest = (rest << step) % mb;
        shift -= step;
    }
    return oi_bits_u64_f64(oi_bits_f64_u64(oi_scaled_f64(oi_f64(rest), oi_f64(eb) - 1075.0)) | sign);
}

//: oi_soft_fma_f32
/* The product is exact in f64. The sum is rounded to odd (an inexact sum gets an odd last bit, so that it lies on the
   same side of every f32 and of every midpoint as the exact one) and only then to f32. */
OI_SPARE float oi_soft_fma_f32(float a, float b, float c)
{
    const double p = oi_f64(a) * oi_f64(b), d = oi_f64(c);
    const double s = p + d, t = s - p;
    const double lost = (p - (s - t)) + (d - t);
    const uint64_t u = oi_bits_f64_u64(s);
    const bool towards_zero = (lost < 0.0) == (s > 0.0);
    const uint64_t odd = (u & 1u) != 0u ? u : towards_zero ? u - 1u : u + 1u;
    return oi_f32(lost != 0.0 && lost - lost == 0.0 ? oi_bits_u64_f64(odd) : s);
}

//: oi_fma_f32
/* a * b + c with one rounding. */
OI_FUNCTION float oi_fma_f32(float a, float b, float c)
{
#if OI_FUSED
    return oi_fused_f32(a, b, c);
#else
    return oi_soft_fma_f32(a, b, c);
#endif
}

//: oi_wide u64
/* A 128-bit unsigned integer. */
struct oi_wide { uint64_t hi, lo; };
OI_TYPE(oi_wide)

//: oi_wide_product
OI_FUNCTION oi_wide oi_wide_product(uint64_t a, uint64_t b)
{
    const uint64_t mask = 0xffffffffu, al = a & mask, ah = a >> 32, bl = b & mask, bh = b >> 32;
    const uint64_t low = al * bl, middle = ah * bl + (low >> 32), cross = al * bh + (middle & mask);
    return oi_make(oi_wide, ah * bh + (middle >> 32) + (cross >> 32), (cross << 32) | (low & mask));
}

//: oi_wide_left
/* Shifts left by 0 to 127 bits. */
OI_FUNCTION oi_wide oi_wide_left(oi_wide a, uint32_t n)
{
    if (n >= 64)
        return oi_make(oi_wide, a.lo << (n - 64), 0);
    return n == 0 ? a : oi_make(oi_wide, (a.hi << n) | (a.lo >> (64 - n)), a.lo << n);
}

//: oi_wide_right
/* Shifts right by any count; the lowest bit is sticky: it is set if a set bit is shifted out. */
OI_FUNCTION oi_wide oi_wide_right(oi_wide a, uint32_t n)
{
    if (n == 0)
        return a;
    if (n >= 128)
        return oi_make(oi_wide, 0, oi_u64((a.hi | a.lo) != 0));
    if (n > 64)
        return oi_make(oi_wide, 0, (a.hi >> (n - 64)) | oi_u64(((a.hi << (128 - n)) | a.lo) != 0));
    if (n == 64)
        return oi_make(oi_wide, 0, a.hi | oi_u64(a.lo != 0));
    return oi_make(oi_wide, a.hi >> n, (a.hi << (64 - n)) | (a.lo >> n) | oi_u64((a.lo << (64 - n)) != 0));
}

//: oi_rounded_wide_f64
/* a * 2^exponent rounded to nearest even, for a from 1 to 2^127 - 1. */
OI_FUNCTION double oi_rounded_wide_f64(oi_wide a, int32_t exponent)
{
    const int32_t top = a.hi != 0u ? 127 - oi_leading_zeros(a.hi) : 63 - oi_leading_zeros(a.lo);
    /* Keeps 53 bits, a guard bit and a sticky bit; fewer if the result is subnormal. */
    const int32_t shift = top - 54 > -1076 - exponent ? top - 54 : -1076 - exponent;
    const uint64_t kept = shift >= 0 ? oi_wide_right(a, oi_u32(shift)).lo : a.lo << -shift;
    const uint64_t last = (kept >> 2) & 1u;
    return oi_scaled_f64(oi_f64((kept + 1u + last) >> 2), oi_f64(exponent + shift + 2));
}

//: oi_soft_fma_f64
/* a * b + c with one rounding, in integer arithmetic. */
OI_SPARE double oi_soft_fma_f64(double a, double b, double c)
{
    OI_EXACT const double all = a - a + (b - b) + (c - c);
    if (all != 0.0 || a == 0.0 || b == 0.0 || c == 0.0) {
        if (oi_is_finite_f64(a) && oi_is_finite_f64(b) && !oi_is_finite_f64(c))
            return c + c;
        return c == 0.0 && a != 0.0 && b != 0.0 ? a * b : a * b + c;
    }
    const double from[3] = { a, b, c };
    uint64_t mantissa[3], sign[3];
    int32_t exponent[3];
    for (int i = 0; i < 3; i++) {
        const uint64_t u = oi_bits_f64_u64(from[i]), fraction = u & 0xfffffffffffffu;
        const int32_t field = oi_i32(u >> 52) & 0x7ff;
        const int32_t up = field != 0 ? 0 : oi_leading_zeros(fraction) - 11;
        sign[i] = u >> 63;
        mantissa[i] = field != 0 ? fraction | 0x10000000000000u : fraction << up;
        exponent[i] = (field != 0 ? field : 1) - up - 1075;
    }
    /* Aligns the leading bits of both terms to 124 or 125, then shifts the smaller term right, with a sticky bit. */
    oi_wide p = oi_wide_left(oi_wide_product(mantissa[0], mantissa[1]), 20);
    oi_wide q = oi_wide_left(oi_make(oi_wide, 0, mantissa[2]), 73);
    const int32_t ep = exponent[0] + exponent[1] - 20, eq = exponent[2] - 73;
    const int32_t e = ep > eq ? ep : eq;
    p = oi_wide_right(p, oi_u32(e - ep));
    q = oi_wide_right(q, oi_u32(e - eq));
    uint64_t negative = sign[0] ^ sign[1];
    oi_wide r;
    if (negative == sign[2]) {
        r = oi_make(oi_wide, p.hi + q.hi, p.lo + q.lo);
        r.hi += oi_u64(r.lo < p.lo);
    } else {
        const bool less = p.hi < q.hi || (p.hi == q.hi && p.lo < q.lo);
        const oi_wide large = less ? q : p, small = less ? p : q;
        r = oi_make(oi_wide, large.hi - small.hi - oi_u64(large.lo < small.lo), large.lo - small.lo);
        negative ^= oi_u64(less);
        if (r.hi == 0 && r.lo == 0)
            return 0.0;
    }
    const double size = oi_rounded_wide_f64(r, e);
    return negative != 0u ? -size : size;
}

//: oi_fma_f64 f64
/* a * b + c with one rounding. */
OI_FUNCTION double oi_fma_f64(double a, double b, double c)
{
#if OI_FUSED
    return oi_fused_f64(a, b, c);
#else
    return oi_soft_fma_f64(a, b, c);
#endif
}

//: oi_soft_sqrt_f64
/* The square root in integer arithmetic, bit by bit. */
OI_SPARE double oi_soft_sqrt_f64(double x)
{
    const uint64_t u = oi_bits_f64_u64(x);
    if (x == 0.0 || x != x || u == 0x7ff0000000000000u)
        return x;
    if (u >> 63 != 0u)
        return OI_NAN64;
    /* x = m * 2^e with an even e and 2^52 <= m < 2^54. */
    int32_t e = oi_i32(u >> 52) - 1075;
    uint64_t m = u & 0xfffffffffffffu;
    if (e == -1075) {
        const int32_t up = oi_leading_zeros(m) - 11;
        m <<= up;
        e = -1074 - up;
    } else {
        m |= oi_u64(1) << 52;
    }
    if ((e & 1) != 0) {
        m <<= 1;
        --e;
    }
    /* 54 bits of the root of m * 2^54, one more than the result has. The root is never halfway between two results. */
    uint64_t root = 0, rest = 0;
    for (int32_t digit = 0; digit < 54; ++digit) {
        rest = rest << 2 | (digit < 27 ? m >> (52 - 2 * digit) & 3u : 0u);
        root <<= 1;
        if (rest > 2 * root) {
            rest -= 2 * root + 1;
            ++root;
        }
    }
    return oi_bits_u64_f64((oi_u64(e / 2 + 1048) << 52) + (root >> 1) + (root & 1u));
}

//: oi_sqrt_f64 f64
OI_FUNCTION double oi_sqrt_f64(double x)
{
#if OI_ROOTS & 8
    return oi_root_f64(x);
#else
    return oi_soft_sqrt_f64(x);
#endif
}

//: oi_sqrt_f32
OI_FUNCTION float oi_sqrt_f32(float x)
{
#if OI_ROOTS & 4
    return oi_root_f32(x);
#else
    /* f64 has more than twice the bits of f32 plus two, so rounding twice gives the same as rounding once. */
    return oi_f32(oi_sqrt_f64(oi_f64(x)));
#endif
}
