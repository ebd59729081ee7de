//: OI_NAN
#define OI_NAN __builtin_nanf("")
//: OI_NAN64
#define OI_NAN64 __builtin_nan("")
//: OI_INF
#define OI_INF __builtin_inff()
//: OI_INF64
#define OI_INF64 __builtin_inf()

//: oi_bits_f32_u32
static inline uint32_t oi_bits_f32_u32(float x) { union { float f; uint32_t u; } v = { x }; return v.u; }
//: oi_bits_f32_i32
static inline int32_t oi_bits_f32_i32(float x) { union { float f; int32_t u; } v = { x }; return v.u; }
//: oi_bits_f64_u64
static inline uint64_t oi_bits_f64_u64(double x) { union { double f; uint64_t u; } v = { x }; return v.u; }
//: oi_bits_f64_i64
static inline int64_t oi_bits_f64_i64(double x) { union { double f; int64_t u; } v = { x }; return v.u; }
//: oi_bits_u32_f32
static inline float oi_bits_u32_f32(uint32_t x) { union { uint32_t u; float f; } v = { x }; return v.f; }
//: oi_bits_i32_f32
static inline float oi_bits_i32_f32(int32_t x) { union { int32_t u; float f; } v = { x }; return v.f; }
//: oi_bits_u64_f64
static inline double oi_bits_u64_f64(uint64_t x) { union { uint64_t u; double f; } v = { x }; return v.f; }
//: oi_bits_i64_f64
static inline double oi_bits_i64_f64(int64_t x) { union { int64_t u; double f; } v = { x }; return v.f; }

//: oi_from_bf16 oi_bits_u32_f32
/* bf16 is the upper half of an f32. */
static inline float oi_from_bf16(uint16_t h) { return oi_bits_u32_f32((uint32_t)h << 16); }

//: oi_to_bf16 oi_bits_f32_u32
/* Round to nearest even; a NaN stays one, with the bits that fit. */
static inline uint16_t oi_to_bf16(float x)
{
    const uint32_t u = oi_bits_f32_u32(x);
    const uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t nan = (u >> 16) | ((uint32_t)((u & 0x007f0000u) == 0) << 6);
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : r);
}

//: oi_from_f16 oi_bits_u32_f32 oi_bits_f32_u32
/* Shift the 5 exponent bits into place and rescale, which makes subnormals come out right. */
static inline float oi_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    const float scaled = oi_bits_u32_f32(rest) * oi_bits_u32_f32(0x77800000u); /* times 2^112 */
    const uint32_t special = rest | 0x7f800000u;
    const uint32_t bits = (h & 0x7c00u) == 0x7c00u ? special : oi_bits_f32_u32(scaled);
    return oi_bits_u32_f32(bits | sign);
}

//: oi_to_f16 oi_bits_u32_f32 oi_bits_f32_u32
/* Round to nearest even; too large gives infinity, a NaN stays one. */
static inline uint16_t oi_to_f16(float x)
{
    const uint32_t u = oi_bits_f32_u32(x);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t a = u & 0x7fffffffu;
    const uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    /* Below 2^-14 adding 0.5 leaves the result in the last bits, rounded. */
    const uint32_t small = oi_bits_f32_u32(oi_bits_u32_f32(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7c00u | ((a >> 13) & 0x3ffu) | ((uint32_t)((a & 0x007fe000u) == 0) << 9) : r;
    return (uint16_t)(r | sign);
}

//: oi_from_f8 oi_from_f16
/* f8 (e5m2) is the upper half of an f16. */
static inline float oi_from_f8(uint8_t h) { return oi_from_f16((uint16_t)((uint16_t)h << 8)); }

//: oi_to_f8 oi_bits_u32_f32 oi_bits_f32_u32
/* Round to nearest even; too large gives infinity, a NaN stays one. */
static inline uint8_t oi_to_f8(float x)
{
    const uint32_t u = oi_bits_f32_u32(x);
    const uint32_t sign = (u >> 24) & 0x80u;
    const uint32_t a = u & 0x7fffffffu;
    const uint32_t normal = (a - 0x38000000u + 0xfffffu + ((a >> 21) & 1u)) >> 21;
    /* Below 2^-14 adding 128 leaves the result in the last bits, rounded. */
    const uint32_t small = oi_bits_f32_u32(oi_bits_u32_f32(a) + 128.0f) - 0x43000000u;
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x47700000u ? 0x7cu : r;
    r = a > 0x7f800000u ? 0x7cu | ((a >> 21) & 3u) | ((uint32_t)((a & 0x00600000u) == 0) << 1) : r;
    return (uint8_t)(r | sign);
}

//: oi_min_f32 oi_bits_u32_f32 oi_bits_f32_u32
/* NaN if either is; -0 is smaller than +0: of equal ones, which differ in the sign if at all, either bit counts. */
static inline float oi_min_f32(float a, float b)
{
    const float same = oi_bits_u32_f32(oi_bits_f32_u32(a) | oi_bits_f32_u32(b)), other = a < b ? a : b;
    return a != a ? a : a == b ? same : other;
}
//: oi_max_f32 oi_bits_u32_f32 oi_bits_f32_u32
/* NaN if either is; +0 is larger than -0: of equal ones, which differ in the sign if at all, both bits count. */
static inline float oi_max_f32(float a, float b)
{
    const float same = oi_bits_u32_f32(oi_bits_f32_u32(a) & oi_bits_f32_u32(b)), other = a > b ? a : b;
    return a != a ? a : a == b ? same : other;
}
//: oi_min_f64 oi_bits_u64_f64 oi_bits_f64_u64
static inline double oi_min_f64(double a, double b)
{
    const double same = oi_bits_u64_f64(oi_bits_f64_u64(a) | oi_bits_f64_u64(b)), other = a < b ? a : b;
    return a != a ? a : a == b ? same : other;
}
//: oi_max_f64 oi_bits_u64_f64 oi_bits_f64_u64
static inline double oi_max_f64(double a, double b)
{
    const double same = oi_bits_u64_f64(oi_bits_f64_u64(a) & oi_bits_f64_u64(b)), other = a > b ? a : b;
    return a != a ? a : a == b ? same : other;
}

//: oi_copysign_f32
static inline float oi_copysign_f32(float a, float b) { return __builtin_copysignf(a, b); }
//: oi_copysign_f64
static inline double oi_copysign_f64(double a, double b) { return __builtin_copysign(a, b); }

//: oi_rint_f32
/* To the nearest integer, halves to even: an instruction, or what adding and taking away 2^23 does. */
static inline float oi_rint_f32(float x)
{
#if defined(__OPTIMIZE__) && (defined(__SSE4_1__) || defined(__aarch64__))
    return __builtin_rintf(x);
#else
    const float a = __builtin_fabsf(x);
    const float r = (a + 8388608.0f) - 8388608.0f;
    return a < 8388608.0f ? __builtin_copysignf(r, x) : x;
#endif
}
//: oi_rint_f64
static inline double oi_rint_f64(double x)
{
    const double a = __builtin_fabs(x);
    const double r = (a + 4503599627370496.0) - 4503599627370496.0;
    return a < 4503599627370496.0 ? __builtin_copysign(r, x) : x;
}
//: oi_trunc_f32 oi_rint_f32
static inline float oi_trunc_f32(float x)
{
    const float a = __builtin_fabsf(x);
    const float r = oi_rint_f32(a);
    return a < 8388608.0f ? __builtin_copysignf(r > a ? r - 1.0f : r, x) : x;
}
//: oi_trunc_f64 oi_rint_f64
static inline double oi_trunc_f64(double x)
{
    const double a = __builtin_fabs(x);
    const double r = oi_rint_f64(a);
    return a < 4503599627370496.0 ? __builtin_copysign(r > a ? r - 1.0 : r, x) : x;
}
//: oi_floor_f32 oi_rint_f32
static inline float oi_floor_f32(float x)
{
    const float r = oi_rint_f32(x);
    return r > x ? __builtin_copysignf(r - 1.0f, x) : r;
}
//: oi_floor_f64 oi_rint_f64
static inline double oi_floor_f64(double x)
{
    const double r = oi_rint_f64(x);
    return r > x ? __builtin_copysign(r - 1.0, x) : r;
}
//: oi_ceil_f32 oi_rint_f32
static inline float oi_ceil_f32(float x)
{
    const float r = oi_rint_f32(x);
    return r < x ? __builtin_copysignf(r + 1.0f, x) : r;
}
//: oi_ceil_f64 oi_rint_f64
static inline double oi_ceil_f64(double x)
{
    const double r = oi_rint_f64(x);
    return r < x ? __builtin_copysign(r + 1.0, x) : r;
}
