//: oi_crc32
/* The CRC-32 of zlib and PNG, four bits at a time. */
static inline uint32_t oi_crc32(uint32_t crc, const unsigned char *data, size_t bytes)
{
    static const uint32_t nibble[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    crc = ~crc;
    for (size_t i = 0; i < bytes; ++i) {
        crc = nibble[(crc ^ data[i]) & 15u] ^ (crc >> 4);
        crc = nibble[(crc ^ ((unsigned)data[i] >> 4)) & 15u] ^ (crc >> 4);
    }
    return ~crc;
}

//: oi_same_text
static inline bool oi_same_text(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        ++a;
        ++b;
    }
    return *a == *b;
}
