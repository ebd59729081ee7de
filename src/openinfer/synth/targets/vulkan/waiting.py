"""How groups wait for other groups while they run: for those of earlier launches, or for the others of their team.

Both need Vulkan's memory model, so that a running group sees what others write; shaders define ``WAITING`` for it.
"""

from string import Template

WAITING = "OI_COUNTED"
"""Defined in shaders whose groups wait for others."""
MEMORY_MODEL = (
    f"#ifdef {WAITING}",
    "#pragma use_vulkan_memory_model",
    "#extension GL_KHR_memory_scope_semantics : require",
    "#define OI_SHARED nonprivate",
    "#else",
    "#define OI_SHARED",
    "#endif",
)
"""What shaders have before their other extensions, if any of them may wait."""
TEAM_BARRIER = "oi_meet_team"
"""The function in which the groups of a team meet."""
TEAM_WORDS = 8
"""Words of a team in memory, of which it uses the first: atomics on words side by side would wait for each other."""
TEAMS_AT = 10
"""Where the address of these words is in the status, in two words."""
FUNCTIONS = Template("""
#ifdef OI_COUNTED
/* The address of the status; and in x the number of this launch, in the lower 31 bits of y how many groups of others it
   waits for, and in the highest bit whether its own groups are counted. Teams count in words at oi_teams. */
uvec2 oi_status, oi_own, oi_teams;

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

/* A barrier for a team, whose groups are adjacent from a multiple of their number on: all of them see each other's
   writes. The last one to come changes the highest bit of their word, and leaves the other bits zero. */
void oi_meet_team(uint groups)
{
    const uint at = gl_WorkGroupID.x / groups * ${words}u;
    const bool is_first = gl_WorkGroupID.x % groups == 0u;
    oi_meet();
    if (gl_LocalInvocationIndex == 0u) {
        oi_words teams = oi_words(oi_teams);
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
        const uint before = atomicAdd(teams.v[at], is_first ? 0x80000001u - groups : 1u, gl_ScopeDevice,
                gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
        while (((atomicLoad(teams.v[at], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed) ^ before)
                & 0x80000000u) == 0u) {}
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
    }
    oi_meet();
}
#endif
""").substitute(words=TEAM_WORDS)
