//: oi_widened i64
/* By words: Mesa 22.3 compares a converted number with a constant in 32 bits, which is wrong. */
int64_t oi_widened(int32_t x) { return packInt2x32(i32vec2(x, x >> 31)); }

//: OI_ZERO
/* A 0 that no compiler can fold: launches have one group along z. Mesa folds x * 0 to 0 and x + 0 to x. */
#define OI_ZERO uintBitsToFloat(gl_WorkGroupID.z)
//: OI_ZERO64 f64
#define OI_ZERO64 double(OI_ZERO)
