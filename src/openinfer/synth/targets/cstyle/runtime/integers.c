//: oi_popcount u64
/* The number of set bits, added up in pairs, nibbles and bytes: not every processor has an instruction for it. */
OI_FUNCTION int32_t oi_popcount(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return oi_i32(x * 0x0101010101010101u >> 56);
}

//: oi_negatives i64
/* The number of negative terms among first, first + step, first + 2 * step and so on. */
OI_FUNCTION int64_t oi_negatives(int64_t first, int64_t step) { return first < 0 ? (step - 1 - first) / step : 0; }
