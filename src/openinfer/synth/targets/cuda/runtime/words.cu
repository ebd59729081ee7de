//: OI_FUNCTION
#define OI_FUNCTION static __device__ inline
//: OI_INLINE
#define OI_INLINE static __device__ __forceinline__
//: OI_SPARE
#define OI_SPARE static __device__ inline
//: OI_OUTLINE
#define OI_OUTLINE static __device__ __noinline__
//: OI_EXACT
/* For a value that must be computed as written; in CUDA, all are. */
#define OI_EXACT
//: OI_TABLE
#define OI_TABLE static const
//: OI_TYPE
#define OI_TYPE(name) 
//: oi_make
/* A struct from its two members. */
#define oi_make(type, first, second) (type{ (first), (second) })

//: oi_u8
#define oi_u8(x) ((uint8_t)(x))
//: oi_u16
#define oi_u16(x) ((uint16_t)(x))
//: oi_u32
#define oi_u32(x) ((uint32_t)(x))
//: oi_u64
#define oi_u64(x) ((uint64_t)(x))
//: oi_i8
#define oi_i8(x) ((int8_t)(x))
//: oi_i16
#define oi_i16(x) ((int16_t)(x))
//: oi_i32
#define oi_i32(x) ((int32_t)(x))
//: oi_i64
#define oi_i64(x) ((int64_t)(x))
//: oi_f32
#define oi_f32(x) ((float)(x))
//: oi_f64
#define oi_f64(x) ((double)(x))

//: oi_bits_f32_u32
#define oi_bits_f32_u32(x) __float_as_uint(x)
//: oi_bits_f32_i32
#define oi_bits_f32_i32(x) __float_as_int(x)
//: oi_bits_f64_u64
#define oi_bits_f64_u64(x) ((uint64_t)__double_as_longlong(x))
//: oi_bits_f64_i64
#define oi_bits_f64_i64(x) ((int64_t)__double_as_longlong(x))
//: oi_bits_u32_f32
#define oi_bits_u32_f32(x) __uint_as_float(x)
//: oi_bits_i32_f32
#define oi_bits_i32_f32(x) __int_as_float(x)
//: oi_bits_u64_f64
#define oi_bits_u64_f64(x) __longlong_as_double((long long)(x))
//: oi_bits_i64_f64
#define oi_bits_i64_f64(x) __longlong_as_double((long long)(x))

//: OI_NAN
#define OI_NAN __int_as_float(0x7fc00000)
//: OI_NAN64
#define OI_NAN64 __longlong_as_double(0x7ff8000000000000)
//: OI_INF
#define OI_INF __int_as_float(0x7f800000)
//: OI_INF64
#define OI_INF64 __longlong_as_double(0x7ff0000000000000)

//: oi_abs_f32
#define oi_abs_f32(x) fabsf(x)
//: oi_abs_f64
#define oi_abs_f64(x) fabs(x)
//: oi_copysign_f32
#define oi_copysign_f32(size, sign) copysignf(size, sign)
//: oi_copysign_f64
#define oi_copysign_f64(size, sign) copysign(size, sign)
//: oi_signbit_f32
#define oi_signbit_f32(x) (__float_as_int(x) < 0)
//: oi_signbit_f64
#define oi_signbit_f64(x) (__double_as_longlong(x) < 0)
//: oi_is_finite_f64
#define oi_is_finite_f64(x) ((x) - (x) == 0.0)
//: oi_leading_zeros
/* The number of leading zeros of a 64-bit number other than 0. */
#define oi_leading_zeros(x) __clzll((long long)(x))
//: oi_last_bit
#define oi_last_bit(x) (((x) & 1u) != 0u)
//: oi_both
#define oi_both(a, b) ((a) && (b))
//: oi_either
#define oi_either(a, b) ((a) || (b))

//: OI_FUSED
/* Fused multiply-add, square roots and rounding to integers are instructions, and exact. */
#define OI_FUSED 1
//: oi_fused_f32
#define oi_fused_f32(a, b, c) __fmaf_rn(a, b, c)
//: oi_fused_f64
#define oi_fused_f64(a, b, c) __fma_rn(a, b, c)
//: OI_ROOTS
#define OI_ROOTS 12
//: oi_root_f32
#define oi_root_f32(x) __fsqrt_rn(x)
//: oi_root_f64
#define oi_root_f64(x) __dsqrt_rn(x)
//: OI_NEAREST
#define OI_NEAREST 1
//: oi_nearest_f32
#define oi_nearest_f32(x) rintf(x)
