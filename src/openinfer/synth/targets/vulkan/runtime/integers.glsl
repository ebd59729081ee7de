//: oi_wrapped_i8
#define oi_wrapped_i8(x) bitfieldExtract(int32_t(x), 0, 8)
//: oi_wrapped_i16
#define oi_wrapped_i16(x) bitfieldExtract(int32_t(x), 0, 16)
//: oi_wrapped_u8
#define oi_wrapped_u8(x) (int32_t(x) & 255)
//: oi_wrapped_u16
#define oi_wrapped_u16(x) (int32_t(x) & 65535)
