//: OI_FUNCTION
/* Precise: no arithmetic that a result depends on is fused or reordered. */
#define OI_FUNCTION precise
//: OI_INLINE
#define OI_INLINE precise
//: OI_SPARE
#define OI_SPARE precise
//: OI_OUTLINE
#define OI_OUTLINE precise
//: OI_EXACT
/* For a value that only conditions depend on: being precise does not reach it from a result. */
#define OI_EXACT precise
//: OI_TABLE
#define OI_TABLE const
//: OI_TYPE
#define OI_TYPE(name) 
//: oi_make
/* A struct from its two members. */
#define oi_make(type, first, second) type(first, second)

//: oi_u8 u8
#define oi_u8(x) uint8_t(x)
//: oi_u16 u16
#define oi_u16(x) uint16_t(x)
//: oi_u32
#define oi_u32(x) uint32_t(x)
//: oi_u64 u64
#define oi_u64(x) uint64_t(x)
//: oi_i8 i8
#define oi_i8(x) int8_t(x)
//: oi_i16 i16
#define oi_i16(x) int16_t(x)
//: oi_i32
#define oi_i32(x) int32_t(x)
//: oi_i64 i64
#define oi_i64(x) int64_t(x)
//: oi_f32
#define oi_f32(x) float(x)
//: oi_f64 f64
#define oi_f64(x) double(x)

//: oi_bits_f32_u32
#define oi_bits_f32_u32(x) floatBitsToUint(x)
//: oi_bits_f32_i32
#define oi_bits_f32_i32(x) floatBitsToInt(x)
//: oi_bits_f64_u64 f64 u64
#define oi_bits_f64_u64(x) doubleBitsToUint64(x)
//: oi_bits_f64_i64 f64 i64
#define oi_bits_f64_i64(x) doubleBitsToInt64(x)
//: oi_bits_u32_f32
#define oi_bits_u32_f32(x) uintBitsToFloat(x)
//: oi_bits_i32_f32
#define oi_bits_i32_f32(x) intBitsToFloat(x)
//: oi_bits_u64_f64 f64 u64
#define oi_bits_u64_f64(x) uint64BitsToDouble(x)
//: oi_bits_i64_f64 f64 i64
#define oi_bits_i64_f64(x) int64BitsToDouble(x)

//: OI_NAN
#define OI_NAN uintBitsToFloat(0x7fc00000u)
//: OI_NAN64 f64 u64
#define OI_NAN64 uint64BitsToDouble(0x7ff8000000000000u)
//: OI_INF
#define OI_INF uintBitsToFloat(0x7f800000u)
//: OI_INF64 f64 u64
#define OI_INF64 uint64BitsToDouble(0x7ff0000000000000u)

//: oi_abs_f32
/* By bits: arithmetic may flush a subnormal number to 0. */
#define oi_abs_f32(x) uintBitsToFloat(floatBitsToUint(x) & 0x7fffffffu)
//: oi_abs_f64 f64 u64
#define oi_abs_f64(x) uint64BitsToDouble(doubleBitsToUint64(x) & 0x7fffffffffffffffu)
//: oi_copysign_f32
OI_FUNCTION float oi_copysign_f32(float size, float sign)
{
    return uintBitsToFloat((floatBitsToUint(size) & 0x7fffffffu) | (floatBitsToUint(sign) & 0x80000000u));
}
//: oi_copysign_f64 f64 u64
OI_FUNCTION double oi_copysign_f64(double size, double sign)
{
    const uint64_t turned = doubleBitsToUint64(sign) & 0x8000000000000000u;
    return uint64BitsToDouble((doubleBitsToUint64(size) & 0x7fffffffffffffffu) | turned);
}
//: oi_signbit_f32
#define oi_signbit_f32(x) (floatBitsToInt(x) < 0)
//: oi_signbit_f64 f64 i64
#define oi_signbit_f64(x) (doubleBitsToInt64(x) < 0)
//: oi_is_finite_f64 f64 u64
#define oi_is_finite_f64(x) ((doubleBitsToUint64(x) & 0x7ff0000000000000u) != 0x7ff0000000000000u)
//: oi_leading_zeros u64
/* The number of leading zeros of a 64-bit number other than 0. */
OI_FUNCTION int32_t oi_leading_zeros(uint64_t x)
{
    const uint32_t high = uint32_t(x >> 32);
    return high != 0u ? 31 - findMSB(high) : 63 - findMSB(uint32_t(x));
}
//: oi_last_bit
#define oi_last_bit(x) (((x) & 1u) != 0u)
//: oi_both
#define oi_both(a, b) ((a) && (b))
//: oi_either
#define oi_either(a, b) ((a) || (b))

//: OI_FUSED
/* Whether fused multiply-add rounds once: the specification leaves it open, so a shader may define it. */
#ifndef OI_FUSED
#define OI_FUSED 0
#endif
//: oi_fused_f32
#define oi_fused_f32(a, b, c) fma(a, b, c)
//: oi_fused_f64
#define oi_fused_f64(a, b, c) fma(a, b, c)
//: OI_ROOTS
/* The sum of the sizes in bytes of floats with exact square roots: 8; those of 4 may be off in the last bit. */
#ifndef OI_ROOTS
#define OI_ROOTS 8
#endif
//: oi_root_f32
#define oi_root_f32(x) sqrt(x)
//: oi_root_f64
#define oi_root_f64(x) sqrt(x)
//: OI_NEAREST
#define OI_NEAREST 1
//: oi_nearest_f32
#define oi_nearest_f32(x) roundEven(x)
