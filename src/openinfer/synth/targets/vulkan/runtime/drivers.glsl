//: oi_widened
/* By words: Mesa 22.3 takes a comparison of a converted number with a constant for one of 32 bits, and is wrong. */
int64_t oi_widened(int32_t x) { return packInt2x32(i32vec2(x, x >> 31)); }

//: OI_ZERO
/* A 0 that no compiler sees, since launches have one layer of groups. Mesa takes x * 0 for 0 and x + 0 for x. */
#define OI_ZERO uintBitsToFloat(gl_WorkGroupID.z)
//: OI_ZERO64
#define OI_ZERO64 double(OI_ZERO)
