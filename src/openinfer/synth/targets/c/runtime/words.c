//: OI_FUNCTION
/* This code is shared with CUDA and GLSL: macros such as this one and oi_u32, a conversion, spell it in C. */
#define OI_FUNCTION static inline

//: OI_INLINE
/* Always inlined: a call that is left in a loop keeps it from being vectorized. */
#if defined(__GNUC__)
#define OI_INLINE static inline __attribute__((always_inline))
#else
#define OI_INLINE static inline
#endif

//: OI_SPARE
/* A fallback for targets that lack an instruction: it may be unused. */
#if defined(__GNUC__)
#define OI_SPARE static inline __attribute__((unused))
#else
#define OI_SPARE static inline
#endif

//: OI_OUTLINE
/* A long function off the hot path. */
#if defined(__GNUC__)
#define OI_OUTLINE __attribute__((noinline)) static
#else
#define OI_OUTLINE static
#endif

//: OI_EXACT
/* Marks a value that must be computed exactly as written, as all values are in C. */
#define OI_EXACT

//: OI_TABLE
#define OI_TABLE static const

//: OI_TYPE
#define OI_TYPE(name) typedef struct name name;

//: oi_make
/* Makes a struct from its two members. */
#define oi_make(type, first, second) ((type){ (first), (second) })

//: oi_u8
#define oi_u8(x) ((uint8_t)(x)) /* converts */
//: oi_u16
#define oi_u16(x) ((uint16_t)(x)) /* converts */
//: oi_u32
#define oi_u32(x) ((uint32_t)(x)) /* converts */
//: oi_u64
#define oi_u64(x) ((uint64_t)(x)) /* converts */
//: oi_i8
#define oi_i8(x) ((int8_t)(x)) /* converts */
//: oi_i16
#define oi_i16(x) ((int16_t)(x)) /* converts */
//: oi_i32
#define oi_i32(x) ((int32_t)(x)) /* converts */
//: oi_i64
#define oi_i64(x) ((int64_t)(x)) /* converts */
//: oi_f32
#define oi_f32(x) ((float)(x)) /* converts */
//: oi_f64
#define oi_f64(x) ((double)(x)) /* converts */

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

//: OI_NAN
#define OI_NAN __builtin_nanf("")
//: OI_NAN64
#define OI_NAN64 __builtin_nan("")
//: OI_INF
#define OI_INF __builtin_inff()
//: OI_INF64
#define OI_INF64 __builtin_inf()

//: oi_abs_f32
#define oi_abs_f32(x) __builtin_fabsf(x)
//: oi_abs_f64
#define oi_abs_f64(x) __builtin_fabs(x)
//: oi_copysign_f32
#define oi_copysign_f32(size, sign) __builtin_copysignf(size, sign)
//: oi_copysign_f64
#define oi_copysign_f64(size, sign) __builtin_copysign(size, sign)
//: oi_signbit_f32
#define oi_signbit_f32(x) (__builtin_signbit(x) != 0)
//: oi_signbit_f64
#define oi_signbit_f64(x) (__builtin_signbit(x) != 0)
//: oi_is_finite_f64
#define oi_is_finite_f64(x) ((x) - (x) == 0.0)
//: oi_leading_zeros
/* The number of leading zeros of a 64-bit integer other than 0. */
#define oi_leading_zeros(x) __builtin_clzll(x)

//: oi_last_bit
/* Whether the lowest bit is set. */
#define oi_last_bit(x) ((x) & 1u)
//: oi_both
/* The conjunction of values that are computed anyway, oi_either the disjunction: && and || would branch. */
#define oi_both(a, b) ((a) & (b))
//: oi_either
#define oi_either(a, b) ((a) | (b))

//: OI_FUSED
/* Whether fused multiply-add is an instruction: library calls are slow and not allowed. */
#if defined(__FMA__) || (defined(__FP_FAST_FMA) && defined(__FP_FAST_FMAF)) \
    || (defined(__ARM_FEATURE_FMA) && defined(__ARM_FP) && (__ARM_FP & 8))
#define OI_FUSED 1
#else
#define OI_FUSED 0
#endif
//: oi_fused_f32
#define oi_fused_f32(a, b, c) __builtin_fmaf(a, b, c)
//: oi_fused_f64
#define oi_fused_f64(a, b, c) __builtin_fma(a, b, c)

//: OI_ROOTS
/* The floats with a square root instruction, as a bit set of their bytes, 4 and 8: library calls are not allowed. */
#if defined(__SSE2__) || defined(__aarch64__) || defined(__wasm__) || defined(__riscv_d) || defined(__powerpc64__)
#define OI_ROOTS 12
#elif defined(__ARM_FP)
#define OI_ROOTS (__ARM_FP & 12)
#else
#define OI_ROOTS 0
#endif
//: oi_root_f32
#if defined(__clang__)
/* clang takes 1 / sqrt(x) for a number that is never negative, but that of -0 is. */
#define oi_root_f32(x) __builtin_copysignf(__builtin_sqrtf(x), x)
#else
#define oi_root_f32(x) __builtin_sqrtf(x)
#endif
//: oi_root_f64
#if defined(__clang__)
/* clang takes 1 / sqrt(x) for a number that is never negative, but that of -0 is. */
#define oi_root_f64(x) __builtin_copysign(__builtin_sqrt(x), x)
#else
#define oi_root_f64(x) __builtin_sqrt(x)
#endif

//: OI_NEAREST
/* Whether rounding an f32 to the nearest integer is an instruction. */
#if defined(__OPTIMIZE__) && (defined(__SSE4_1__) || defined(__aarch64__))
#define OI_NEAREST 1
#else
#define OI_NEAREST 0
#endif
//: oi_nearest_f32
#define oi_nearest_f32(x) __builtin_rintf(x)
