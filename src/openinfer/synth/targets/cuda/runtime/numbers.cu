//: oi_pair_bf16
/* Packs two numbers into a word, the first in the lower half, rounded as by oi_to_bf16. */
OI_FUNCTION uint32_t oi_pair_bf16(float a, float b)
{
    return oi_u32(oi_to_bf16(a)) | (oi_u32(oi_to_bf16(b)) << 16);
}
