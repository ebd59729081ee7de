//: oi_index_add
/* Index arithmetic. An overflow of 64 bits sets *bad to 1, unless it is already set. */
static inline int64_t oi_index_add(int64_t a, int64_t b, int *bad)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r) && !*bad) *bad = 1;
    return r;
}

//: oi_index_sub
static inline int64_t oi_index_sub(int64_t a, int64_t b, int *bad)
{
    int64_t r;
    if (__builtin_sub_overflow(a, b, &r) && !*bad) *bad = 1;
    return r;
}

//: oi_index_mul
static inline int64_t oi_index_mul(int64_t a, int64_t b, int *bad)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r) && !*bad) *bad = 1;
    return r;
}

//: oi_index_div
/* Quotients round down, and remainders have the sign of the divisor. A division by zero sets *bad to 2. */
static inline int64_t oi_index_div(int64_t a, int64_t b, int *bad)
{
    if (b == 0 || (b == -1 && a == INT64_MIN)) {
        if (!*bad) *bad = b == 0 ? 2 : 1;
        return 0;
    }
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

//: oi_index_rem
static inline int64_t oi_index_rem(int64_t a, int64_t b, int *bad)
{
    if (b == 0) {
        if (!*bad) *bad = 2;
        return 0;
    }
    if (b == -1) return 0;
    const int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

//: oi_index_u64
static inline int64_t oi_index_u64(uint64_t a, int *bad)
{
    if (a > INT64_MAX && !*bad) *bad = 1;
    return (int64_t)(a & INT64_MAX);
}

//: oi_size_of
/* The size from 0 to bound with slope * size == rest; -1 if there is none. */
static inline int64_t oi_size_of(int64_t rest, int64_t slope, int64_t bound)
{
    if (slope == 0) return rest == 0 ? 0 : -1;
    if (slope == -1) return rest <= 0 && rest >= -bound ? -rest : -1;
    return rest % slope == 0 && rest / slope >= 0 && rest / slope <= bound ? rest / slope : -1;
}
