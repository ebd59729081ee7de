"""How groups wait for other groups while they run: for those of earlier launches, or for values of their team.

Those that wait for launches need Vulkan's memory model, so that they see what others have written; shaders define
``WAITING`` for it. Values of a team are in atomic words themselves; shaders define ``IN_TEAMS`` for these.
"""

WAITING = "OI_COUNTED"
"""Defined in shaders whose groups wait for launches."""
IN_TEAMS = "OI_IN_TEAMS"
"""Defined in shaders whose groups wait for values of others."""
MEMORY_MODEL = (
    f"#ifdef {WAITING}",
    "#pragma use_vulkan_memory_model",
    "#define OI_SHARED nonprivate",
    "#else",
    "#define OI_SHARED",
    "#endif",
    f"#if defined({WAITING}) || defined({IN_TEAMS})",
    "#extension GL_KHR_memory_scope_semantics : require",
    "#endif",
)
"""What shaders have before their other extensions, if any of them may wait."""
POST, POSTED, LEAVE = "oi_post", "oi_posted", "oi_leave"
"""The functions with which groups exchange values of 32 bits."""
WORD_DIGITS = 2
"""The words of such a value."""
TEAMS_AT = 10
"""Where the address of these words is in the status, in two words."""
FUNCTIONS = """
#ifdef OI_COUNTED
/* The address of the status; and in x the number of this launch, in the lower 31 bits of y how many groups of others it
   waits for, and in the highest bit whether its own groups are counted. */
uvec2 oi_status, oi_own;

#define OI_ALL_MEMORY (gl_StorageSemanticsBuffer | gl_StorageSemanticsShared)

/* A barrier for the threads of a group: all of them see each other's writes to any memory. */
void oi_meet()
{
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, OI_ALL_MEMORY,
            gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
}

/* Waits until all groups that this launch waits for have ended, and sees their writes. */
void oi_await()
{
    const uint count = oi_own.y & 0x7fffffffu;
    if (count == 0u) return;
    if (gl_LocalInvocationIndex == 0u) {
        while (atomicLoad(oi_words(oi_status).v[8], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed)
                < count) {}
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
    }
    oi_meet();
}

/* Counts this group as ended: launches that wait for it see its writes. */
void oi_ended()
{
    if ((oi_own.y & 0x80000000u) == 0u) return;
    oi_meet();
    if (gl_LocalInvocationIndex == 0u) {
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
        atomicAdd(oi_words(oi_status).v[8], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
    }
}
#endif

#ifdef OI_IN_TEAMS
/* The address of the words of teams: all are zero before a launch and after it. */
uvec2 oi_teams;

/* Posts a value in two words, each with half of its bits and one that says that they are there. */
void oi_post(uint at, uint value)
{
    oi_words words = oi_words(oi_teams);
    atomicExchange(words.v[at], 0x10000u | (value >> 16));
    atomicExchange(words.v[at + 1u], 0x10000u | (value & 0xffffu));
}

/* Waits for a value that a group posts: nothing else of what it has written is visible. */
uint oi_posted(uint at)
{
    oi_words words = oi_words(oi_teams);
    uint high = 0u, low = 0u;
    while (high == 0u || low == 0u) {
        high = atomicLoad(words.v[at], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
        low = atomicLoad(words.v[at + 1u], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
    }
    return high << 16 | (low & 0xffffu);
}

/* Counts this group, which has found all that others posted, in the word behind the others of a row. The last one
   zeroes all of them: no group waits for them any more. */
void oi_leave(uint at, uint count, uint groups)
{
    oi_words words = oi_words(oi_teams);
    if (gl_LocalInvocationIndex != 0u || atomicAdd(words.v[at + count], 1u) != groups - 1u) return;
    for (uint i = 0u; i <= count; ++i)
        atomicStore(words.v[at + i], 0u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
}
#endif
"""
