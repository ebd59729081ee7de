//: oi_reduced
struct oi_reduced { oi_pair rest; uint32_t k; };
OI_TYPE(oi_reduced)

//: oi_reduced_large
/* x - k * pi / 2 as a double-double and k modulo 4, for every finite x >= 2: x * 2 / pi modulo 4 in integers, with as
   many bits of 2 / pi as matter (Payne and Hanek). */
OI_OUTLINE oi_reduced oi_reduced_large(double x)
{
    /* 64 zero bits, then the fraction bits of 2 / pi. */
    OI_TABLE uint32_t two_over_pi[41] = {
        0x00000000u, 0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u,
        0xfe5163abu, 0xdebbc561u, 0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu,
        0xe88235f5u, 0x2ebb4484u, 0xe99c7026u, 0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu,
        0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu, 0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du,
        0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u, 0x8a5292eau, 0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u, 0xfc7b6babu,
        0xf0cfbc20u,
    };
    const uint64_t u = oi_bits_f64_u64(x), m = (u & 0xfffffffffffffu) | 0x10000000000000u;
    /* x = m * 2^e. The first e - 2 bits of 2 / pi only contribute multiples of 4: they are skipped. */
    const int32_t e = oi_i32(u >> 52) - 1075;
    const uint32_t skip = oi_u32(e - 2 + 64), word = skip / 32, shift = skip % 32;
    /* The lower 224 bits of m * window, least significant word first: two integer bits, 222 fraction bits. */
    uint32_t product[7] = { 0u, 0u, 0u, 0u, 0u, 0u, 0u };
    for (int part = 0; part < 2; part++) {
        const uint64_t factor = part != 0 ? m >> 32 : m & 0xffffffffu;
        uint64_t carry = 0;
        for (int i = 0; i + part < 7; i++) {
            const uint64_t both = oi_u64(two_over_pi[word + 6 - i]) << 32 | two_over_pi[word + 7 - i];
            const uint64_t sum = factor * ((both << shift >> 32) & 0xffffffffu) + product[i + part] + carry;
            product[i + part] = oi_u32(sum);
            carry = sum >> 32;
        }
    }
    uint32_t k = product[6] >> 30;
    const bool above = oi_last_bit(product[6] >> 29);
    k += oi_u32(above);
    product[6] &= 0x3fffffffu;
    /* The fraction, or its distance to the next integer: 2^222 - fraction is the complement plus one. */
    uint64_t carry = 1;
    for (int i = 0; i < 7; i++) {
        const uint64_t flipped = oi_u64(~product[i]) + carry;
        product[i] = above ? oi_u32(flipped) : product[i];
        carry = flipped >> 32;
    }
    product[6] &= 0x3fffffffu;
    oi_pair f = oi_make_pair(0.0, 0.0);
    double unit = 0x1p-30;
    for (int i = 6; i >= 0; i--) {
        const oi_pair s = oi_exact_sum(f.hi, oi_f64(product[i]) * unit);
        f = oi_make_pair(s.hi, f.lo + s.lo);
        unit *= 0x1p-32;
    }
    f = oi_exact_sum(f.hi, f.lo);
    oi_pair r = oi_pair_product(f, oi_make_pair(0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54));
    r = above ? oi_make_pair(-r.hi, -r.lo) : r;
    return oi_make(oi_reduced, r, k & 3u);
}

//: oi_reduced_f64
/* |x| - k * pi / 2 and k modulo 4 for finite x. */
OI_FUNCTION oi_reduced oi_reduced_f64(double x)
{
    const double a = oi_abs_f64(x);
    if (a > 0x1p20)
        return oi_reduced_large(a);
    const double shifted = a * 0x1.45f306dc9c883p-1 + 0x1.8p52;
    const double k = shifted - 0x1.8p52;
    /* pi / 2 in four parts, three of which have 30 bits: their products with k are exact. */
    const oi_pair first = oi_exact_sum(a - k * 0x1.921fb54000000p+0, k * -0x1.10b4611800000p-30);
    const oi_pair second = oi_exact_sum(first.hi, k * -0x1.313198a000000p-61);
    const oi_pair r = oi_exact_sum(second.hi, (first.lo + second.lo) - k * 0x1.701b839a25205p-92);
    return oi_make(oi_reduced, r, oi_u32(oi_bits_f64_u64(shifted)) & 3u);
}

//: oi_sin_part
/* sin(r) for |r| < 0.786 */
OI_FUNCTION oi_pair oi_sin_part(oi_pair r)
{
    const double z = r.hi * r.hi;
    double p = -0x1.aaa0a5cfea734p-41;
    p = oi_mad_f64(p, z, 0x1.612088ad08a0ap-33);
    p = oi_mad_f64(p, z, -0x1.ae6452872eee9p-26);
    p = oi_mad_f64(p, z, 0x1.71de3a532b03ep-19);
    p = oi_mad_f64(p, z, -0x1.a01a01a018a1cp-13);
    p = oi_mad_f64(p, z, 0x1.111111111110bp-7);
    p = oi_mad_f64(p, z, -0x1.5555555555555p-3);
    return oi_ordered_sum(r.hi, r.hi * z * p + r.lo * (1.0 - 0.5 * z));
}

//: oi_cos_part
/* cos(r) for |r| < 0.786 */
OI_FUNCTION oi_pair oi_cos_part(oi_pair r)
{
    const oi_pair square = oi_exact_product(r.hi, r.hi);
    const double z = square.hi;
    double p = 0x1.aab9ad2ac749ep-45;
    p = oi_mad_f64(p, z, -0x1.93931bcbdc578p-37);
    p = oi_mad_f64(p, z, 0x1.1eed8c88a2f55p-29);
    p = oi_mad_f64(p, z, -0x1.27e4fb75e35d0p-22);
    p = oi_mad_f64(p, z, 0x1.a01a01a018c3ep-16);
    p = oi_mad_f64(p, z, -0x1.6c16c16c16c0fp-10);
    p = oi_mad_f64(p, z, 0x1.5555555555555p-5);
    const oi_pair s = oi_ordered_sum(1.0, -0.5 * z);
    return oi_ordered_sum(s.hi, s.lo + (z * z * p - (0.5 * square.lo + r.hi * r.lo)));
}

//: oi_sin_f64
/* Measured: at most 0.78 ulp. */
OI_FUNCTION double oi_sin_f64(double x)
{
    if (!(oi_abs_f64(x) >= 0x1p-27))
        return x;
    OI_EXACT const double zero = x - x;
    if (zero != 0.0)
        return zero;
    const oi_reduced a = oi_reduced_f64(x);
    const double y = (a.k & 1u) != 0u ? oi_cos_part(a.rest).hi : oi_sin_part(a.rest).hi;
    return (a.k >= 2u) != (x < 0.0) ? -y : y;
}

//: oi_cos_f64
/* Measured: at most 0.82 ulp. */
OI_FUNCTION double oi_cos_f64(double x)
{
    OI_EXACT const double zero = x - x;
    if (zero != 0.0)
        return zero;
    const oi_reduced a = oi_reduced_f64(x);
    const double y = (a.k & 1u) != 0u ? oi_sin_part(a.rest).hi : oi_cos_part(a.rest).hi;
    return a.k == 1u || a.k == 2u ? -y : y;
}

//: oi_tan_f64
/* Measured: at most 0.93 ulp. */
OI_FUNCTION double oi_tan_f64(double x)
{
    if (!(oi_abs_f64(x) >= 0x1p-28))
        return x;
    OI_EXACT const double zero = x - x;
    if (zero != 0.0)
        return zero;
    const oi_reduced a = oi_reduced_f64(x);
    const oi_pair s = oi_sin_part(a.rest), c = oi_cos_part(a.rest);
    const double y = (a.k & 1u) != 0u ? -oi_pair_quotient(c, s).hi : oi_pair_quotient(s, c).hi;
    return x < 0.0 ? -y : y;
}

//: oi_angle
/* atan2(y, x) as a double-double, for non-negative y and x that are not both 0, and between 2^-480 and 2^500. */
OI_FUNCTION oi_pair oi_angle(oi_pair y, oi_pair x)
{
    /* atan(i / 16) */
    OI_TABLE double table[17][2] = {
        { 0.0, 0.0 }, { 0x1.ff55bb72cfdeap-5, -0x1.c934d86d23f1dp-60 },
        { 0x1.fd5ba9aac2f6ep-4, -0x1.cd37686760c17p-59 }, { 0x1.7b97b4bce5b02p-3, 0x1.347b0b4f881cap-58 },
        { 0x1.f5b75f92c80ddp-3, 0x1.8ab6e3cf7afbdp-57 }, { 0x1.362773707ebccp-2, -0x1.963a544b672d8p-57 },
        { 0x1.6f61941e4def1p-2, -0x1.c63aae6f6e918p-56 }, { 0x1.a64eec3cc23fdp-2, -0x1.24dec1b50b7ffp-56 },
        { 0x1.dac670561bb4fp-2, 0x1.a2b7f222f65e2p-56 }, { 0x1.0657e94db30d0p-1, -0x1.d5b495f6349e6p-56 },
        { 0x1.1e00babdefeb4p-1, -0x1.928df287a668fp-58 }, { 0x1.345f01cce37bbp-1, 0x1.1021137c71102p-55 },
        { 0x1.4978fa3269ee1p-1, 0x1.2419a87f2a458p-56 }, { 0x1.5d58987169b18p-1, 0x1.0028e4bc5e7cap-57 },
        { 0x1.700a7c5784634p-1, -0x1.8c34d25aadef6p-56 }, { 0x1.819d0b7158a4dp-1, -0x1.bf76229d3b917p-56 },
        { 0x1.921fb54442d18p-1, 0x1.1a62633145c07p-55 },
    };
    const bool steep = y.hi > x.hi;
    const oi_pair n = steep ? x : y, d = steep ? y : x;
    /* atan(n / d) = atan(c) + atan((n - c d) / (d + c n)) with c the nearest sixteenth */
    const int32_t i = oi_i32(n.hi / d.hi * 16.0 + 0.5);
    const double c = oi_f64(i) * 0.0625;
    const oi_pair cd = oi_exact_product(c, d.hi), cn = oi_exact_product(c, n.hi);
    const oi_pair above = oi_pair_sum(n, oi_make_pair(-cd.hi, -cd.lo - c * d.lo));
    const oi_pair below = oi_pair_sum(d, oi_make_pair(cn.hi, cn.lo + c * n.lo));
    const oi_pair t = oi_pair_quotient(above, below);
    const double z = t.hi * t.hi;
    double p = 0x1.3a2047ce6f69cp-4;
    p = oi_mad_f64(p, z, -0x1.745cc24882e84p-4);
    p = oi_mad_f64(p, z, 0x1.c71c71b87f4f8p-4);
    p = oi_mad_f64(p, z, -0x1.2492492491a65p-3);
    p = oi_mad_f64(p, z, 0x1.9999999999999p-3);
    p = oi_mad_f64(p, z, -0x1.5555555555555p-2);
    const oi_pair small = oi_ordered_sum(t.hi, t.lo + t.hi * z * p);
    const oi_pair a = oi_pair_sum(oi_make_pair(table[i][0], table[i][1]), small);
    const oi_pair quarter = oi_make_pair(0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54);
    return steep ? oi_pair_sum(quarter, oi_make_pair(-a.hi, -a.lo)) : a;
}

//: oi_atan_f64
/* Measured: at most 0.501 ulp. */
OI_FUNCTION double oi_atan_f64(double x)
{
    const double a = oi_abs_f64(x);
    if (!(a >= 0x1p-28))
        return x;
    const double y = a > 0x1p60 ? 0x1.921fb54442d18p+0 : oi_angle(oi_make_pair(a, 0.0), oi_make_pair(1.0, 0.0)).hi;
    return oi_copysign_f64(y, x);
}

//: oi_atan2_f64
/* Measured: at most 0.501 ulp. */
OI_FUNCTION double oi_atan2_f64(double y, double x)
{
    if (x != x || y != y)
        return x + y;
    const double ay = oi_abs_f64(y), ax = oi_abs_f64(x);
    const bool behind = oi_signbit_f64(x);
    const double pi = 0x1.921fb54442d18p+1;
    double a;
    if (ay == 0.0 || (ax == OI_INF64 && ay < ax)) {
        a = behind ? pi : 0.0;
    } else if (ax == OI_INF64 && ay == ax) {
        a = behind ? 0.75 * pi : 0.25 * pi;
    } else if (ay * 0x1p-60 > ax || (ay > ax * 0x1p60)) {
        a = 0.5 * pi;
    } else if (ax * 0x1p-60 > ay || ax > ay * 0x1p60) {
        a = behind ? pi : ay / ax;
    } else {
        const double most = ay > ax ? ay : ax;
        const double scale = most > 0x1p450 ? 0x1p-600 : most < 0x1p-400 ? 0x1p600 : 1.0;
        const oi_pair t = oi_angle(oi_make_pair(ay * scale, 0.0), oi_make_pair(ax * scale, 0.0));
        a = behind ? oi_pair_sum(oi_make_pair(pi, 0x1.1a62633145c07p-53), oi_make_pair(-t.hi, -t.lo)).hi : t.hi;
    }
    return oi_copysign_f64(a, y);
}

//: oi_asin_f64
/* asin(x) = atan2(x, sqrt(1 - x^2)). Measured: at most 0.501 ulp. */
OI_FUNCTION double oi_asin_f64(double x)
{
    const double a = oi_abs_f64(x);
    if (!(a >= 0x1p-28))
        return x;
    if (a > 1.0)
        return OI_NAN64;
    const oi_pair square = oi_exact_product(a, a);
    const oi_pair other = oi_pair_sqrt(oi_pair_sum(oi_make_pair(1.0, 0.0), oi_make_pair(-square.hi, -square.lo)));
    return oi_copysign_f64(oi_angle(oi_make_pair(a, 0.0), other).hi, x);
}

//: oi_acos_f64
/* acos(x) = atan2(sqrt(1 - x^2), x). Measured: at most 0.501 ulp. */
OI_FUNCTION double oi_acos_f64(double x)
{
    const double a = oi_abs_f64(x);
    if (!(a <= 1.0))
        return x != x ? x + x : OI_NAN64;
    const oi_pair square = oi_exact_product(a > 0x1p-60 ? a : 0.0, a);
    const oi_pair other = oi_pair_sqrt(oi_pair_sum(oi_make_pair(1.0, 0.0), oi_make_pair(-square.hi, -square.lo)));
    const oi_pair t = oi_angle(other, oi_make_pair(a > 0x1p-60 ? a : 0.0, 0.0));
    const oi_pair pi = oi_make_pair(0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53);
    return x < 0.0 ? oi_pair_sum(pi, oi_make_pair(-t.hi, -t.lo)).hi : t.hi;
}
