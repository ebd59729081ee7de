#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_spirv_intrinsics : require
/* Arithmetic on chosen numbers. Numbers are loaded and stored as bits, so that only the arithmetic can change them. */
#ifdef OI_PRESERVE
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);
#endif
layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer numbers { uvec2 v[]; };
layout(push_constant) uniform oi_given { uvec2 given, found; uint count; } here;

#ifdef OI_DOUBLE
#define NUMBER double
#define NUMBER_OF(bits) packDouble2x32(bits)
#define BITS_OF(x) unpackDouble2x32(x)
#else
#define NUMBER float
#define NUMBER_OF(bits) uintBitsToFloat((bits).x)
#define BITS_OF(x) uvec2(floatBitsToUint(x), 0u)
#endif

void main()
{
    const uint i = gl_GlobalInvocationID.x;
    if (i >= here.count) return;
    numbers given = numbers(here.given), found = numbers(here.found);
    const NUMBER a = NUMBER_OF(given.v[3 * i]), b = NUMBER_OF(given.v[3 * i + 1]), c = NUMBER_OF(given.v[3 * i + 2]);
#ifdef OI_HALVES
    const vec2 halves = unpackHalf2x16(given.v[3 * i + 2].x);
    found.v[5 * i] = uvec2(packHalf2x16(vec2(a, b)), 0u);
    found.v[5 * i + 1] = uvec2(floatBitsToUint(halves.x), 0u);
    found.v[5 * i + 2] = uvec2(floatBitsToUint(halves.y), 0u);
#else
    precise const NUMBER product = a * b, sum = a + b, quotient = a / b, root = sqrt(a), fused = fma(a, b, c);
    found.v[5 * i] = BITS_OF(product);
    found.v[5 * i + 1] = BITS_OF(sum);
    found.v[5 * i + 2] = BITS_OF(quotient);
    found.v[5 * i + 3] = BITS_OF(root);
    found.v[5 * i + 4] = BITS_OF(fused);
#endif
}
