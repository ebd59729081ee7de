//: oi_assume
/* States what always holds. Compilers warn about arrays as long as a dynamic extent can be if they do not know it. */
#if defined(__GNUC__)
#define oi_assume(fact) do { if (!(fact)) __builtin_unreachable(); } while (0)
#else
#define oi_assume(fact) ((void)0)
#endif
