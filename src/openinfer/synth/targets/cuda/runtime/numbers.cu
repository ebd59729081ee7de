//: oi_pair_bf16
/* Two numbers in one word, the first in its lower half, rounded as each is alone. */
OI_FUNCTION uint32_t oi_pair_bf16(float a, float b)
{
    return oi_u32(oi_to_bf16(a)) | (oi_u32(oi_to_bf16(b)) << 16);
}
